from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.program.layouts.rank_mesh import RankGrid, members_in_domain, strides

AXES = ("tp", "cp", "dp_shard", "dp_replicate", "pp")


def in_domain(grid: RankGrid, axes, domain) -> int:
    """Members of a group over ``axes`` that share a fast domain, in closed form."""
    steps = strides(grid.sizes, grid.order)
    return int(members_in_domain([grid.sizes[a] for a in axes], [steps[a] for a in axes], domain))


def enumerated(grid: RankGrid, axes) -> set[tuple[int, ...]]:
    """Groups by counting through all coordinates, the last axis of the order slowest."""
    groups = defaultdict(list)
    slowest_first = tuple(reversed(grid.order))
    for rank, place in enumerate(product(*(range(grid.sizes[axis]) for axis in slowest_first))):
        key = tuple(i for axis, i in zip(slowest_first, place, strict=True) if axis not in axes)
        groups[key].append(rank)
    return {tuple(members) for members in groups.values()}


def counted(grid: RankGrid, axes, domain: int) -> int:
    """The fewest members that any group has in any domain that it touches."""
    return min(min(Counter(r // domain for r in members).values()) for members in enumerated(grid, axes))


any_size = st.integers(1, 4)


@st.composite
def grids(draw: st.DrawFn, sizes: st.SearchStrategy = any_size) -> RankGrid:
    order = tuple(draw(st.permutations(AXES))[: draw(st.integers(1, 5))])
    return RankGrid({axis: draw(sizes) for axis in order}, order)


some_axes = st.lists(st.sampled_from(AXES), unique=True)


@given(grids(), some_axes)
@settings(max_examples=150, deadline=None)
def test_groups_are_those_of_counting_through_coordinates(grid, chosen):
    axes = tuple(axis for axis in chosen if axis in grid.sizes)
    expected = enumerated(grid, axes)
    found = grid.groups(axes)
    assert {tuple(int(r) for r in members) for members in found} == expected
    assert found.shape == (grid.ranks // grid.size(axes), grid.size(axes))
    for members in expected:
        for rank in members:
            assert grid.group_of(rank, axes) == members


@given(grids())
@settings(max_examples=60, deadline=None)
def test_coordinates_and_strides_name_every_rank_once(grid):
    steps = strides(grid.sizes, grid.order)
    places = [grid.coordinates(rank) for rank in range(grid.ranks)]
    assert len({tuple(sorted(place.items())) for place in places}) == grid.ranks
    for rank, place in enumerate(places):
        assert rank == sum(place[axis] * steps[axis] for axis in grid.order)
        assert all(0 <= place[axis] < grid.sizes[axis] for axis in grid.order)


@given(grids(st.sampled_from((1, 2, 4))), some_axes, st.sampled_from((1, 2, 4, 8, 16, 32)))
@settings(max_examples=120, deadline=None)
def test_members_in_a_domain_are_counted_exactly_where_sizes_divide(grid, chosen, domain):
    axes = tuple(axis for axis in chosen if axis in grid.sizes)
    assert in_domain(grid, axes, domain) == counted(grid, axes, domain)


@given(grids(), some_axes, st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_members_in_a_domain_are_never_more_than_the_worst_group_has(grid, chosen, domain):
    axes = tuple(axis for axis in chosen if axis in grid.sizes)
    assert 1 <= in_domain(grid, axes, domain) <= counted(grid, axes, domain)


def test_two_grids_on_one_rank_set():
    """dp 2 × tp 4 beside ep 4 × edp 2: an ep group crosses both tp groups."""
    attention = RankGrid({"tp": 4, "dp": 2}, ("tp", "dp"))
    experts = RankGrid({"ep": 4, "edp": 2}, ("edp", "ep"))
    assert attention.ranks == experts.ranks == 8
    assert attention.groups(("tp",)).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert experts.groups(("ep",)).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert experts.groups(("edp",)).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_group_over_two_axes():
    grid = RankGrid({"tp": 2, "cp": 2, "dp": 2}, ("tp", "cp", "dp"))
    assert grid.groups(("tp", "dp")).tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert grid.group_of(3, ("dp", "tp")) == (2, 3, 6, 7)


@given(st.lists(grids(), min_size=2, max_size=4), st.integers(1, 16))
@settings(max_examples=40, deadline=None)
def test_arrays_of_grids_give_the_numbers_of_each(grids_, domain):
    order = AXES
    full = [RankGrid({axis: g.sizes.get(axis, 1) for axis in AXES}, order) for g in grids_]
    sizes = {axis: np.array([g.sizes[axis] for g in full]) for axis in AXES}
    steps = strides(sizes, order)
    axes = ("cp", "dp_replicate")
    found = members_in_domain([sizes[a] for a in axes], [steps[a] for a in axes], domain)
    assert list(found) == [in_domain(g, axes, domain) for g in full]


@pytest.mark.parametrize("domain", [1, 8, 72])
def test_a_group_of_one_rank_is_alone(domain):
    assert in_domain(RankGrid({"tp": 1, "dp": 8}, ("tp", "dp")), ("tp",), domain) == 1
