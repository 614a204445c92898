"""The closed form of a hand-over against the change of layout rank by rank."""

import numpy as np
import pytest
from replica_draws import draw

from meshwright.cost.operators.pass_prices import reshard_seconds
from meshwright.cost.serving.kv_transfers import cache_transfer
from meshwright.program.serving.cache_reshard import hand_over_bytes


def deviation(seed):
    """Closed form over re-shard, less 1, of a hand-over between two draws of one model."""
    sender, receiver = draw(seed), draw(seed + 30)
    cost, degrees = sender.cost, receiver.cost.degrees
    tokens = int(10 ** np.random.default_rng(seed).uniform(1, 4.5))
    moved = hand_over_bytes(cost.model, tokens, cost.formats, cost.degrees, degrees, cost.times.forms.domain)
    rank_by_rank = reshard_seconds(moved, cost.times.forms)
    closed = cache_transfer(cost.model, cost.times, tokens, cost.formats, cost.degrees, degrees).seconds
    return float(closed / rank_by_rank - 1)


@pytest.mark.parametrize("first", [0, 100, 200])
def test_the_closed_form_is_that_of_the_busiest_rank(first):
    found = np.abs([deviation(seed) for seed in range(first, first + 60)])
    assert (found < 1e-3).mean() > 0.9
    assert found.max() < 0.05
