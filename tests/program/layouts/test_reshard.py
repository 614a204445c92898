from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_array_transfers import collected, grids, layouts, shapes, spread

from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.layouts.reshard import reshard
from meshwright.program.layouts.tensor_layout import Layout, Partial, Replicate, Shard
from meshwright.program.pass_items import WIRE_FACTOR

ITEMSIZE = 2
S0, S1, B, P = Shard(0), Shard(1), Replicate(), Partial()


def played(source, target, shape, seed=0):
    """Carry out a reshard on real arrays; the transfers and what every rank holds then."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(-1000, 1000, shape)
    machine = spread(whole, source, rng)
    transfers = reshard(source, target, shape, ITEMSIZE)
    for transfer in transfers:
        before = machine.sent
        machine.run(transfer)
        assert transfer.sent_bytes == ITEMSIZE * (machine.sent - before), transfer.kind
    for rank, value in enumerate(collected(machine, target)):
        np.testing.assert_array_equal(value, whole[target.local_slice(rank, shape)])
    return transfers


@given(st.data(), shapes, st.integers(0, 9))
@settings(max_examples=400, deadline=None)
def test_transfers_lead_to_the_target(data, shape, seed):
    grid = data.draw(grids())
    source, target = (data.draw(layouts(grid, len(shape))) for _ in range(2))
    played(source, target, shape, seed)


@given(st.data(), shapes, st.integers(0, 9))
@settings(max_examples=200, deadline=None)
def test_transfers_lead_from_one_grid_to_another(data, shape, seed):
    one = data.draw(grids())
    other = data.draw(grids(ranks=one.ranks))
    played(data.draw(layouts(one, len(shape))), data.draw(layouts(other, len(shape))), shape, seed)


@given(st.data(), shapes)
@settings(max_examples=60, deadline=None)
def test_a_layout_is_already_there(data, shape):
    layout = data.draw(layouts(data.draw(grids()), len(shape)))
    assert reshard(layout, layout, shape, ITEMSIZE) == ()


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(
    ("source", "target", "kind", "cost"),
    [
        (S0, S1, "all-to-all", lambda p: (p - 1) / p),
        (S0, B, "all-gather", lambda p: p - 1),
        (P, S0, "reduce-scatter", lambda p: p - 1),
        (P, B, "all-reduce", lambda p: 2 * (p - 1)),
        (B, S0, "slice", lambda p: 0),
        (B, P, "slice", lambda p: 0),
        (S0, P, "slice", lambda p: 0),
    ],
)
def test_costs_of_the_seven_transitions(source, target, kind, cost, ranks):
    """Totals over devices in units of the tensor's bytes: OneFlow (arXiv 2110.15032), table 2."""
    grid, shape = RankGrid({"a": ranks}, ("a",)), (16, 8)
    (transfer,) = played(Layout(grid, {"a": source}), Layout(grid, {"a": target}), shape)
    assert transfer.kind == kind
    assert transfer.sent_bytes == cost(ranks) * ITEMSIZE * prod(shape)


@given(st.data(), st.sampled_from([(16, 16), (16, 32, 16)]))
@settings(max_examples=80, deadline=None)
def test_logical_bytes_price_even_transfers_exactly(data, shape):
    """Ranks × factor·(n−1)/n × logical bytes = what all ranks send, where pieces are equal."""
    grid = RankGrid({"a": 2, "b": 4}, data.draw(st.permutations(("a", "b"))))
    placement = st.sampled_from([B, P, *(Shard(dim) for dim in range(len(shape)))])
    source, target = (Layout(grid, {axis: data.draw(placement) for axis in ("a", "b")}) for _ in range(2))
    for transfer in reshard(source, target, shape, ITEMSIZE):
        if transfer.kind == "slice":
            assert transfer.sent_bytes == transfer.logical_bytes == 0
            continue
        n = grid.size(transfer.axes)
        one_rank = WIRE_FACTOR[transfer.kind] * (n - 1) / n * transfer.logical_bytes
        assert transfer.sent_bytes == grid.ranks * one_rank


def test_free_cuts_come_before_sums():
    """Cutting a replica first halves what is summed up."""
    grid = RankGrid({"a": 2, "b": 2}, ("a", "b"))
    transfers = reshard(Layout(grid, {"a": P}), Layout(grid, {"b": S0}), (8,), ITEMSIZE)
    assert [(t.kind, t.axes) for t in transfers] == [("slice", ("b",)), ("all-reduce", ("a",))]
    assert transfers[1].logical_bytes == 4 * ITEMSIZE


def test_an_inner_axis_leaves_before_an_outer_one():
    grid = RankGrid({"a": 2, "b": 2}, ("a", "b"))
    transfers = reshard(Layout(grid, {"a": S0, "b": S0}), Layout(grid, {"a": S1, "b": S0}), (8, 8), ITEMSIZE)
    assert [(t.kind, t.axes) for t in transfers] == [
        ("all-gather", ("b",)),
        ("all-to-all", ("a",)),
        ("slice", ("b",)),
    ]


def test_sequence_shards_become_head_shards_by_one_all_to_all():
    """Ulysses: (sequence, heads) cut by sequence → cut by heads."""
    grid = RankGrid({"cp": 4, "tp": 2}, ("tp", "cp"))
    source = Layout(grid, {"tp": S1, "cp": S0})
    (transfer,) = played(source, Layout(grid, {"tp": S1, "cp": S1}), (8, 16))
    assert (transfer.kind, transfer.axes) == ("all-to-all", ("cp",))


def test_uneven_state_is_dealt_out_anew_by_moving_only_what_moves():
    grid = RankGrid({"dp": 3}, ("dp",))
    source, target = (Layout(grid, {"dp": Shard(0, cuts)}) for cuts in ((4, 4, 4), (6, 3, 3)))
    (transfer,) = played(source, target, (12,))
    assert transfer.kind == "all-to-all"
    assert transfer.sent_bytes == (2 + 1) * ITEMSIZE


def test_two_meshes_on_one_rank_set():
    """Parameters cut over the attention mesh's tp reach ranks that cut them over the experts' ep."""
    attention = RankGrid({"tp": 2, "dp": 4}, ("tp", "dp"))
    experts = RankGrid({"ep": 4, "edp": 2}, ("ep", "edp"))
    (transfer,) = played(Layout(attention, {"tp": S0}), Layout(experts, {"ep": S0}), (8,))
    assert transfer.axes == ("world",)
    have = [range(4), range(4, 8)] * 4
    want = [range(2 * e, 2 * e + 2) for e in range(4)] * 2
    lacking = sum(len(set(w) - set(h)) for h, w in zip(have, want, strict=True))
    assert transfer.sent_bytes == ITEMSIZE * lacking
