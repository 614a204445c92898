from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_array_transfers import grids, layouts, shapes

from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.layouts.tensor_layout import Layout, Partial, Replicate, Shard, boundaries

GRID = RankGrid({"a": 2, "b": 3}, ("b", "a"))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_pieces_tile_the_tensor_once_per_copy(data):
    layout = data.draw(layouts(data.draw(grids()), 3))
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=3, max_size=3)))
    counts = np.zeros(shape, dtype=int)
    largest = 0
    for rank in range(layout.grid.ranks):
        part = layout.local_slice(rank, shape)
        counts[part] += 1
        assert layout.local_shape(rank, shape) == counts[part].shape
        largest = max(largest, counts[part].size)
    assert (counts == layout.copies).all()
    assert layout.largest_local(shape) == largest


@given(st.data(), shapes)
@settings(max_examples=60, deadline=None)
def test_pieces_of_a_dim_follow_each_other(data, shape):
    layout = data.draw(layouts(data.draw(grids()), len(shape)))
    for dim, length in enumerate(shape):
        pieces = layout.pieces(dim, length)
        assert pieces[0][0] == 0
        assert pieces[-1][1] == length
        assert all(left[1] == right[0] for left, right in pairwise(pieces))


@pytest.mark.parametrize(("length", "parts"), list(product((0, 1, 5, 8, 9), (1, 2, 3, 4, 7))))
def test_even_pieces_are_those_of_array_slicing(length, parts):
    step = max(1, -(-length // parts))
    expected = [len(range(length)[i * step : (i + 1) * step]) for i in range(parts)]
    assert list(np.diff(boundaries(length, parts, None))) == expected


def test_uneven_cuts_are_sizes_where_they_add_up():
    layout = Layout(GRID, {"b": Shard(0, (5, 0, 2))})
    assert [layout.local_shape(rank, (7, 3)) for rank in range(3)] == [(5, 3), (0, 3), (2, 3)]


def test_uneven_cuts_are_in_proportion_inside_another_cut():
    layout = Layout(GRID, {"a": Shard(0), "b": Shard(0, (2, 1, 1))})
    assert layout.pieces(0, 16) == [(0, 4), (4, 6), (6, 8), (8, 12), (12, 14), (14, 16)]


def test_the_order_of_axes_decides_who_holds_what():
    outer_a, outer_b = (Layout(GRID, dict.fromkeys(axes, Shard(0))) for axes in (("a", "b"), ("b", "a")))
    rank = 1  # a = 0, b = 1
    assert GRID.coordinates(rank) == {"a": 0, "b": 1}
    assert outer_a.local_slice(rank, (6,)) == (slice(1, 2),)
    assert outer_b.local_slice(rank, (6,)) == (slice(2, 3),)


def test_two_dims_cut_by_two_axes():
    """A 2-D layout: dim 0 over a, dim 1 over b."""
    layout = Layout(GRID, {"a": Shard(0), "b": Shard(1)})
    assert layout.local_slice(5, (4, 6)) == (slice(2, 4), slice(4, 6))
    assert layout.copies == 1


def test_axes_that_are_left_out_replicate():
    layout = Layout(GRID, {"a": Partial()})
    assert layout.placement("b") == Replicate()
    assert layout.partial_axes == ("a",)
    assert layout.copies == 6


@pytest.mark.parametrize(
    "placements",
    [{"z": Shard(0)}, {"a": Shard(0, (1, 1, 1))}, {"a": Shard(0, (2, -1))}, {"a": Shard(0, (0, 0))}],
)
def test_impossible_layouts_are_stopped(placements):
    with pytest.raises(AssertionError):
        Layout(GRID, placements)
