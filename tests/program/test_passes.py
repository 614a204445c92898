from meshwright.program.items import Collective, Segment
from meshwright.program.passes import pass_body

A, B = 0, 1
GATHER = {block: (Collective("all-gather", ("dp_shard",), 10 + block, f"block {block}"),) for block in (A, B)}
REDUCE = {
    block: (Collective("reduce-scatter", ("dp_shard",), 20 + block, f"block {block}"),) for block in (A, B)
}


def body(kind, gather, blocks=(A, B, B)):
    return [
        (s.block, s.count, [c.logical_bytes for c in s.beside])
        for s in pass_body(blocks, kind, gather, GATHER, REDUCE)
    ]


def test_equal_layers_in_a_row_are_one_segment():
    assert pass_body((A, B, B, A), "F", "never", {}, {}) == (
        Segment(A, "F", 1),
        Segment(B, "F", 2),
        Segment(A, "F", 1),
    )
    assert body("B", "never") == [(B, 2, []), (A, 1, [])]
    assert body("F", "per-step") == [(A, 1, []), (B, 2, [])]


def test_a_forward_pass_gathers_one_layer_ahead():
    assert body("F", "per-layer") == [(None, 1, [10]), (A, 1, [11]), (B, 1, [11]), (B, 1, [])]


def test_a_backward_pass_gathers_ahead_and_reduces_behind():
    assert body("B", "per-layer") == [
        (None, 1, [11]),
        (B, 1, [11]),
        (B, 1, [10, 21]),
        (A, 1, [21]),
        (None, 1, [20]),
    ]


def test_halves_of_a_backward_pass_gather_in_one_and_reduce_in_the_other():
    assert body("I", "per-layer") == [(None, 1, [11]), (B, 1, [11]), (B, 1, [10]), (A, 1, [])]
    assert body("W", "per-layer") == [(B, 1, []), (B, 1, [21]), (A, 1, [21]), (None, 1, [20])]


def test_a_micro_batch_is_gathered_for_at_once_and_stays_for_its_backward_pass():
    assert body("F", "per-micro-batch") == [(None, 1, [10, 11, 11]), (A, 1, []), (B, 2, [])]
    assert body("B", "per-micro-batch") == [(B, 2, []), (A, 1, [])]


def test_units_without_anything_to_gather_have_no_segment_of_their_own():
    assert pass_body((A, B), "F", "per-layer", {B: GATHER[B]}, {}) == (
        Segment(A, "F", 1, GATHER[B]),
        Segment(B, "F", 1),
    )
