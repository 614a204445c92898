"""Covering sets: every three features that fit meet, nothing is larger than the limit, and what is missing is said."""

from itertools import combinations
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from meshwright.plans.shrink.covering_sets import covering

COSTS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from((1, 1, 2, 2, 4)), min_size=1)
LIMITS = st.sampled_from((1, 2, 4, 8, 16))


@given(COSTS, LIMITS)
def test_sets_fit_and_combinations_that_fit_meet(costs, limit):
    found = covering(costs, limit)
    assert found.sets
    assert all(prod(costs[name] for name in chosen) <= limit for chosen in found.sets)
    size = min(3, len(costs))
    for fewer in range(1, size + 1):
        for one in combinations(costs, fewer):
            fits = prod(costs[name] for name in one) <= limit
            assert fits == any(set(one) <= set(chosen) for chosen in found.sets)
            assert fewer < size or (one in found.covered) == fits == (one not in found.not_covered)


@given(COSTS, LIMITS)
def test_every_set_has_a_combination_that_no_earlier_one_has(costs, limit):
    met = set()
    for chosen in covering(costs, limit).sets:
        own = {one for size in range(4) for one in combinations(chosen, size)}
        assert own - met
        met |= own


def test_features_of_meshes_over_the_same_ranks_cost_what_the_larger_mesh_does():
    meshes = (("dp", "tp"), ("ep", "etp"))
    costs = dict.fromkeys(("pp", "dp", "tp", "ep", "etp"), 2)
    assert covering(costs, 8, meshes).sets == (tuple(costs),)
    assert ("pp", "ep", "etp") in covering(costs, 4, meshes).not_covered
    assert ("pp", "tp", "ep") in covering(costs, 4, meshes).covered


def test_three_axes_need_one_set_of_eight_ranks_and_four_axes_need_four():
    axes = dict.fromkeys(("pp", "dp_replicate", "dp_shard", "tp"), 2)
    assert len(covering(dict(list(axes.items())[:3]), 8).sets) == 1
    assert len(covering(axes, 8).sets) == 4
    assert len(covering(axes, 16).sets) == 1
    four_ranks = covering(axes, 4)
    assert len(four_ranks.sets) == 6
    assert four_ranks.covered == ()
    assert four_ranks.not_covered == tuple(combinations(axes, 3))


def test_a_plan_without_features_is_one_set():
    assert covering({}, 8).sets == ((),)
    assert covering({}, 8).covered == covering({}, 8).not_covered == ()
