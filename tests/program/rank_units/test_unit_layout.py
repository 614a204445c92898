"""The pieces of a unit: all elements once, shards even, a shared table cut alike in both of its stages."""

from dataclasses import replace
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.layouts.table_transfers import balanced
from meshwright.program.rank_units.unit_layout import Cut, Tensor, UnitLayout, unit_layout
from meshwright.runtime.state.sharded_unit import flat_of_shards, shard_of_flat, shards_of_flat

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)
parts = st.integers(1, 9)


def layout(lengths, count, shared=0):
    tensors = [Tensor(f"t{i}", (n,), (n,), (Cut(0, 0, n),), True, False, True) for i, n in enumerate(lengths)]
    return UnitLayout(tuple(tensors), sum(lengths[:1]) if shared else 0, count)


@given(sizes, parts, st.booleans())
def test_every_element_has_one_owner_and_no_shard_is_above_an_even_part(lengths, count, shared):
    of = layout(lengths, count, shared)
    owned = [i for part in range(count) for start, stop in of.pieces(part) for i in range(start, stop)]
    assert sorted(owned) == list(range(of.size))
    for part in range(count):
        assert sum(stop - start for start, stop in of.pieces(part)) <= of.shard


@given(sizes, parts, st.booleans())
def test_shards_put_together_are_the_buffer_again(lengths, count, shared):
    of = layout(lengths, count, shared)
    flat = torch.arange(1, of.size + 1)
    rows = (
        shards_of_flat(of, flat)
        if of.shared or of.size % count == 0
        else torch.nn.functional.pad(flat, (0, of.parts * of.shard - of.size))
    )
    for part, row in enumerate(rows.view(count, -1)):
        shard = torch.zeros(of.shard, dtype=flat.dtype)
        shard_of_flat(of, part, flat, shard)
        assert torch.equal(shard, row)
    assert torch.equal(flat_of_shards(of, rows), flat)


@given(sizes, st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
def test_shards_by_weight_lie_one_after_the_other(lengths, weights):
    of = replace(layout(lengths, len(weights)), weights=tuple(weights))
    flat = torch.arange(of.size)
    held = [flat[of.row(part)] for part in range(of.parts)]
    assert torch.equal(torch.cat(held), flat)
    assert [len(shard) for shard in held] == [of.held(part) for part in range(of.parts)]
    for part, shard in enumerate(held):
        own = torch.zeros(of.held(part), dtype=flat.dtype)
        shard_of_flat(of, part, flat, own)
        assert torch.equal(own, shard)
    assert torch.equal(flat_of_shards(of, flat), flat)


@given(st.integers(1, 60), parts, sizes, sizes)
def test_two_stages_own_the_same_of_their_table(table, count, others, more):
    first, second = layout([table, *others], count, shared=1), layout([table, *more], count, shared=1)
    for part in range(count):
        assert first.pieces(part)[0] == second.pieces(part)[0]


@given(st.integers(0, 60), parts, st.booleans())
def test_balanced_pieces_differ_by_one_at_most(length, count, first):
    bounds = balanced(length, count, first=first)
    widths = [stop - start for start, stop in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(widths)) == (0, length, count)
    assert max(widths) - min(widths) <= 1
    assert widths == sorted(widths, reverse=first)


def test_partial_gradients_are_one_range_at_the_end():
    def tensor(name, cut, partial, length=4):
        return Tensor(name, (length,), (length,), (), cut, partial, True)

    mixed = [
        tensor("norm", False, False),
        tensor("head norm", False, True, 2),
        tensor("matrix", True, False, 7),
    ]
    of = unit_layout([*mixed, tensor("table", True, False, 5)], ["table"], 2)
    assert [t.name for t in of.tensors] == ["table", "matrix", "norm", "head norm"]
    assert of.shared == 5
    assert of.summed_range(sequence_parallel=True) == (12, 18)
    assert of.summed_range(sequence_parallel=False) == (16, 18)
