from meshwright.program.items import Collective, Segment
from meshwright.program.passes import pass_body

A, B, C = 0, 1, 2
GATHER = {i: (Collective("all-gather", ("dp_shard",), 10 + i, f"block {i}"),) for i in (A, B, C)}
REDUCE = {i: (Collective("reduce-scatter", ("dp_shard",), 20 + i, f"block {i}"),) for i in (A, B, C)}


def body(kind, gather, blocks=(A, B, B), **options):
    return [
        (s.block, s.count, [c.logical_bytes for c in s.beside])
        for s in pass_body(blocks, kind, gather, GATHER, REDUCE, **options)
    ]


def gathered(sizes):
    return [size for size in sizes if size < 20]


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
    together = (Collective("all-gather", ("dp_shard",), 32, "stage 0"),)
    assert body("F", "per-micro-batch", together=together) == [(None, 1, [32]), (A, 1, []), (B, 2, [])]
    assert body("B", "per-micro-batch", together=together) == [(B, 2, []), (A, 1, [])]


def test_a_table_of_both_ends_stays_whole_forward_and_is_gathered_for_the_head_alone_backward():
    ends = (A, B, C)
    forward, backward = (
        body("F", "per-layer", ends, shared=(A, C)),
        body("B", "per-layer", ends, shared=(A, C)),
    )
    assert forward == [(None, 1, [10]), (A, 1, [11]), (B, 1, [12]), (C, 1, [])]
    assert [gathered(beside) for _, _, beside in backward] == [[12, 10], [11], [], [], []]


def test_a_head_apart_from_its_embedding_on_the_same_rank_gathers_the_table_in_both_passes():
    for kind in ("F", "B"):
        first = body(kind, "per-layer", (B, C), shared=(A, C))
        assert 10 in [size for _, _, beside in first for size in beside]
    assert all(not gathered(beside) for _, _, beside in body("W", "per-layer", (B, C), shared=(A, C)))


def test_units_without_anything_to_gather_have_no_segment_of_their_own():
    assert pass_body((A, B), "F", "per-layer", {B: GATHER[B]}, {}) == (
        Segment(A, "F", 1, GATHER[B]),
        Segment(B, "F", 1),
    )
