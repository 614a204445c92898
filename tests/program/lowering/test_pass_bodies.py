from meshwright.program.lowering.pass_bodies import UnitExchanges, pass_body
from meshwright.program.pass_items import Collective, Segment

A, B, C = 0, 1, 2
GATHER = {i: (Collective("all-gather", ("dp_shard",), 10 + i, f"block {i}"),) for i in (A, B, C)}
REDUCE = {i: (Collective("reduce-scatter", ("dp_shard",), 20 + i, f"block {i}"),) for i in (A, B, C)}

NOTHING = UnitExchanges(gathers={}, reductions={})
PER_LAYER = UnitExchanges(gathers=GATHER, reductions=REDUCE, ahead=frozenset("FBI"))
KEPT = UnitExchanges(gathers=GATHER, reductions=REDUCE, ahead=frozenset("F"))


def body(kind, units, blocks=(A, B, B), **options):
    return [
        (s.block, s.count, [c.logical_bytes for c in s.overlapped])
        for s in pass_body(blocks, kind, units, **options)
    ]


def gathered(sizes):
    return [size for size in sizes if size < 20]


def test_equal_layers_in_a_row_are_one_segment():
    assert pass_body((A, B, B, A), "F", NOTHING) == (
        Segment(A, "F", 1),
        Segment(B, "F", 2),
        Segment(A, "F", 1),
    )
    assert body("B", NOTHING) == [(B, 2, []), (A, 1, [])]


def test_a_forward_pass_gathers_one_layer_ahead():
    assert body("F", PER_LAYER) == [(None, 1, [10]), (A, 1, [11]), (B, 1, [11]), (B, 1, [])]


def test_a_backward_pass_gathers_ahead_and_reduces_behind():
    assert body("B", PER_LAYER) == [
        (None, 1, [11]),
        (B, 1, [11]),
        (B, 1, [10, 21]),
        (A, 1, [21]),
        (None, 1, [20]),
    ]


def test_halves_of_a_backward_pass_gather_in_one_and_reduce_in_the_other():
    assert body("I", PER_LAYER) == [(None, 1, [11]), (B, 1, [11]), (B, 1, [10]), (A, 1, [])]
    assert body("W", PER_LAYER) == [(B, 1, []), (B, 1, [21]), (A, 1, [21]), (None, 1, [20])]


def test_a_micro_batch_is_gathered_for_at_once_and_stays_for_its_backward_pass():
    together = (Collective("all-gather", ("dp_shard",), 32, "stage 0"),)
    assert body("F", NOTHING, together=together) == [(None, 1, [32]), (A, 1, []), (B, 2, [])]
    assert body("B", NOTHING, together=together) == [(B, 2, []), (A, 1, [])]


def test_what_stays_for_the_backward_pass_may_come_a_layer_ahead_and_is_not_gathered_again():
    assert body("F", KEPT) == body("F", PER_LAYER)
    assert body("B", KEPT) == [(B, 1, []), (B, 1, [21]), (A, 1, [21]), (None, 1, [20])]
    assert body("I", KEPT) == [(B, 2, []), (A, 1, [])]


def test_every_micro_batch_reduces_behind_each_layer_or_all_of_it_after_the_pass():
    beside = UnitExchanges(gathers={}, reductions=REDUCE)
    after = UnitExchanges(gathers={}, reductions=REDUCE, hidden=False)
    assert body("B", beside) == [(B, 1, []), (B, 1, [21]), (A, 1, [21]), (None, 1, [20])]
    assert body("B", after) == [(B, 2, []), (A, 1, []), (None, 1, [21, 21, 20])]
    for units in (beside, after):
        assert body("F", units) == [(A, 1, []), (B, 2, [])]


def test_a_table_of_both_ends_stays_whole_forward_and_is_gathered_for_the_head_alone_backward():
    ends = (A, B, C)
    forward, backward = (
        body("F", PER_LAYER, ends, shared=(A, C)),
        body("B", PER_LAYER, ends, shared=(A, C)),
    )
    assert forward == [(None, 1, [10]), (A, 1, [11]), (B, 1, [12]), (C, 1, [])]
    assert [gathered(beside) for _, _, beside in backward] == [[12, 10], [11], [], [], []]


def test_a_head_apart_from_its_embedding_on_the_same_rank_gathers_the_table_in_both_passes():
    for kind in ("F", "B"):
        first = body(kind, PER_LAYER, (B, C), shared=(A, C))
        assert 10 in [size for _, _, beside in first for size in beside]
    assert all(not gathered(beside) for _, _, beside in body("W", PER_LAYER, (B, C), shared=(A, C)))


def test_units_without_anything_to_gather_have_no_segment_of_their_own():
    few = UnitExchanges(gathers={B: GATHER[B]}, reductions={}, ahead=frozenset("F"))
    assert pass_body((A, B), "F", few) == (
        Segment(A, "F", 1, GATHER[B]),
        Segment(B, "F", 1),
    )
