"""The strategy of each layer of a stage, against every assignment."""

from itertools import pairwise

import numpy as np
import pytest

from meshwright.search.layers.strategy_assignment import LayerCosts, least_seconds, undominated


def random_costs(rng, kinds, strategies):
    """Costs with quicker strategies that need more bytes, and some equal changes of layout."""
    change = rng.choice([0.0, 0.5, 1.0], (strategies, strategies)) * rng.random((strategies, strategies))
    np.fill_diagonal(change, 0)
    seconds = rng.random((kinds, strategies)) + 0.1
    sizes = 1 / seconds + rng.random((kinds, strategies))
    return LayerCosts(seconds, sizes, rng.choice([0.0, 1.0, 3.0], (kinds, strategies)), change)


def by_brute_force(costs, kinds, capacity):
    """The least seconds over every assignment, infinite where none fits."""
    shape = (costs.seconds.shape[1],) * len(kinds)
    chosen = np.indices(shape).reshape(len(kinds), -1)
    held = sum(costs.bytes[kind][row] for kind, row in zip(kinds, chosen, strict=True))
    held = held + np.max([costs.peak[kind][row] for kind, row in zip(kinds, chosen, strict=True)], axis=0)
    seconds = sum(costs.seconds[kind][row] for kind, row in zip(kinds, chosen, strict=True))
    seconds = seconds + sum(costs.change[one, other] for one, other in pairwise(chosen))
    return float(np.where(held <= capacity, seconds, np.inf).min())


@pytest.mark.parametrize("seed", range(24))
def test_layer_search_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    for _ in range(10):
        layers, strategies = rng.integers(1, 7), rng.integers(1, 9)
        kinds = rng.integers(0, 2, layers)
        costs = random_costs(rng, 2, strategies)
        capacity = float(rng.uniform(0.7, 1.6) * costs.bytes.mean() * layers)
        found, least = least_seconds(costs, kinds, capacity), by_brute_force(costs, kinds, capacity)
        if found is None:
            assert least == np.inf
            continue
        assert found[0] == pytest.approx(least, rel=1e-9)
        at = list(zip(kinds, found[1], strict=True))
        assert sum(costs.bytes[one] for one in at) + max(costs.peak[one] for one in at) <= capacity


def test_thinned_labels_fit_and_are_no_quicker_than_the_best():
    rng = np.random.default_rng(0)
    costs = random_costs(rng, 1, 6)
    for capacity in np.linspace(0.5, 1.5, 5) * 20 * costs.bytes.mean():
        exact, thin = (least_seconds(costs, [0] * 20, capacity, most) for most in (10**6, 12))
        assert (exact is None) or thin is None or thin[0] >= exact[0] - 1e-12


def test_more_memory_is_never_slower():
    rng = np.random.default_rng(1)
    for _ in range(20):
        costs = random_costs(rng, 2, 5)
        kinds = rng.integers(0, 2, 8)
        found = [least_seconds(costs, kinds, c) for c in np.linspace(8, 40, 9)]
        seconds = [np.inf if one is None else one[0] for one in found]
        assert all(a >= b - 1e-12 for a, b in pairwise(seconds))


@pytest.mark.parametrize("levels", [2, 200])
@pytest.mark.parametrize("count", [1, 12, 120])
def test_undominated_rows_are_those_that_no_other_row_beats(levels, count):
    rng = np.random.default_rng(levels)
    rows = rng.integers(0, levels, (3, count)).astype(float)
    every = rows.T.tolist()
    beaten = {
        i
        for i, one in enumerate(every)
        for j, other in enumerate(every)
        if i != j and all(a <= b for a, b in zip(other, one, strict=True)) and (other != one or j < i)
    }
    assert sorted(set(range(count)) - beaten) == undominated(*rows).tolist()
