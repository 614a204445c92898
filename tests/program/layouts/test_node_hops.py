"""Hops between nodes: held against rings, chains and pairs that are followed rank by rank."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.cluster import Tier
from meshwright.program.layouts.node_hops import Fabric, Groups, groups_over, opposite_rank_pairs, slowdown
from meshwright.program.layouts.rank_mesh import RankGrid

PER_NODE = 2


def random_fabric(nodes, seed, tiers=()):
    rates = np.random.default_rng(seed).uniform(0.05, 1.0, (nodes, nodes))
    return Fabric(1 / np.minimum(rates, rates.T), PER_NODE, tiers)


def followed(members, shape, fabric, order):
    """The slowest link of all groups' hops, and what each unit's uplinks carry, member by member."""
    slowest, n = 1.0, members.shape[1]
    for group in members:
        nodes = [order[rank // PER_NODE] for rank in group]
        steps = pairwise(nodes)
        if shape == "all":
            steps = permutations(nodes, 2)
        elif shape in ("ring", "loop"):
            steps = zip(nodes, [*nodes[1:], nodes[0]], strict=True)
        slowest = max([slowest, *(fabric.slowness[a, b] for a, b in steps if a != b)])
    return slowest if n > 1 else 1.0


@st.composite
def grids(draw):
    sizes = {axis: draw(st.sampled_from([1, 2, 3, 4])) for axis in ("a", "b", "c")}
    ranks = int(np.prod(list(sizes.values())))
    return RankGrid(sizes, draw(st.permutations(["a", "b", "c"]))) if ranks % PER_NODE == 0 else None


@settings(deadline=None, max_examples=100)
@given(
    grids().filter(bool),
    st.sets(st.sampled_from("abc"), min_size=1),
    st.sampled_from(["ring", "chain", "loop", "all"]),
    st.integers(0, 99),
    st.randoms(use_true_random=False),
)
def test_the_slowest_link_of_all_groups(grid, axes, shape, seed, random):
    strides = dict(zip(grid.order, np.cumprod([1, *(grid.sizes[a] for a in grid.order)]), strict=False))
    spread = tuple((grid.sizes[a], int(strides[a])) for a in axes)
    groups = Groups(spread, grid.ranks, shape, 1)
    assert sorted(map(tuple, groups.members())) == sorted(map(tuple, grid.groups(tuple(axes))))
    fabric = random_fabric(grid.ranks // PER_NODE, seed)
    order = list(range(fabric.nodes))
    random.shuffle(order)
    expected = followed(groups.members(), shape, fabric, order)
    assert slowdown(groups, fabric, tuple(order)) == pytest.approx(expected, rel=1e-12)


def test_many_orders_at_once_are_each_alone():
    fabric = random_fabric(4, 7, (Tier(name="pair", devices=4, oversubscription=3),))
    hops = Groups(((4, 1), (2, 4)), 8, "all", 2).hops(PER_NODE)
    orders = np.array(list(permutations(range(4))))
    alone = [fabric.slowdowns(hops, order[None])[0] for order in orders]
    assert fabric.slowdowns(hops, orders) == pytest.approx(alone)


TIER = Tier(name="pod", devices=8, oversubscription=6)


@pytest.mark.parametrize(
    ("axes", "shape", "together", "factor"),
    [
        (
            ((8, 4),),
            "ring",
            1,
            6 / 2,
        ),  # 4 rings leave a pod that has cards for 8/6, a member of it in each node
        (((16, 2),), "ring", 1, 6 / 4),
        (((32, 1),), "ring", 2, 6 * 2 / 8),  # one ring, two cards of a node in it
        (((4, 8),), "chain", 1, 6),  # all 8 devices of a pod send on
        (((2, 2),), "chain", 1, 1),  # none crosses
        (((8, 4),), "all", 1, 6 * (8 - 2) / (8 - 1)),
    ],
)
def test_uplinks_of_a_tier(axes, shape, together, factor):
    fabric = Fabric(np.ones((16, 16)), PER_NODE, (TIER,))
    assert slowdown(Groups(axes, 32, shape, together), fabric, tuple(range(16))) == pytest.approx(factor)


def test_nodes_that_change_places_take_their_uplinks_along():
    fabric = Fabric(np.ones((4, 4)), PER_NODE, (Tier(name="pod", devices=4, oversubscription=4),))
    rings = Groups(((2, 2),), 8, "ring", 1)
    assert slowdown(rings, fabric, (0, 1, 2, 3)) == 1
    assert slowdown(rings, fabric, (0, 2, 1, 3)) == 4


def test_pairs_that_mirror_each_other():
    assert opposite_rank_pairs(4, 2, 8, ends_only=True).tolist() == [[0, 6], [1, 7]]
    assert opposite_rank_pairs(4, 2, 8, ends_only=False).tolist() == [[0, 6], [1, 7], [2, 4], [3, 5]]
    tied = Groups(((4, 2),), 8, "ring", 1, "ends")
    fabric = random_fabric(4, 1)
    assert slowdown(tied, fabric, (2, 0, 1, 3)) == pytest.approx(max(1.0, fabric.slowness[2, 3]))


def test_members_of_a_group_are_in_the_order_of_their_ranks():
    assert groups_over(((2, 8), (2, 1)), 16).tolist()[:2] == [[0, 1, 8, 9], [2, 3, 10, 11]]
