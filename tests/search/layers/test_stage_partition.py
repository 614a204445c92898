"""The cut of layers into stages with a strategy for each, against every cut."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from test_strategy_assignment import random_costs

from meshwright.search.layers.stage_partition import assigned_chunks, assigned_stages, best_cut
from meshwright.search.layers.strategy_assignment import ChainLabels, LayerCosts, least_seconds


def every_cut(layers, stages):
    """Stops of all cuts whose first and last stage have two entries or more."""
    for inner in combinations(range(2, layers - 1), stages - 1):
        yield (0, *inner, layers)


@pytest.mark.parametrize("seed", range(12))
def test_the_slowest_stage_is_as_quick_as_it_can_be_and_then_the_sum(seed):
    rng = np.random.default_rng(seed)
    layers, stages = int(rng.integers(6, 11)), int(rng.integers(2, 4))
    kinds = (0, *[1] * (layers - 2), 2)
    costs = random_costs(rng, 3, 3)
    capacity = float(rng.uniform(0.8, 2.5) * costs.bytes.mean() * layers / stages)
    chains = [ChainLabels(costs, capacity) for _ in range(stages)]
    found = assigned_stages(kinds, chains)
    merits = []
    for stops in every_cut(layers, stages):
        own = [least_seconds(costs, kinds[a:b], capacity) for a, b in pairwise(stops)]
        if None not in own:
            seconds = [one[0] for one in own]
            merits.append((max(seconds), sum(seconds)))
    if found is None:
        assert not merits
        return
    slowest = min(merits)[0]
    assert max(found.seconds) == pytest.approx(slowest, rel=1e-9)
    within = [merit[1] for merit in merits if merit[0] <= slowest * (1 + 1e-9)]
    assert sum(found.seconds) == pytest.approx(min(within), rel=1e-9)
    assert max(found.held) <= capacity
    assert len(found.strategies) == layers


def test_a_rank_with_several_stages_shares_its_memory_among_them():
    seconds, size = np.array([[1.0, 2.0]] * 2), np.array([[4.0, 1.0], [2.0, 1.0]])
    costs = LayerCosts(seconds, size, np.zeros((2, 2)), np.zeros((2, 2)))
    chains = [ChainLabels(costs, 9.0), ChainLabels(costs, 100.0)]
    found = assigned_chunks([0] * 8, chains, (0, 2, 4, 6, 8), 1)
    assert found is not None
    assert found.seconds == (5.0, 4.0)
    assert found.held[0] <= 9
    assert [found.strategies[at] for at in (2, 3, 6, 7)] == [0] * 4
    assert found.strategies[:2].count(1) == 1
    assert found.strategies[4:6].count(1) == 0
    assert assigned_chunks([0] * 8, [ChainLabels(costs, 3.0)] * 2, (0, 2, 4, 6, 8), 1) is None


def test_no_cut_where_layers_are_fewer_than_stages_need():
    assert best_cut(4, 3, lambda stage, first, stop: float(stop - first)) is None
