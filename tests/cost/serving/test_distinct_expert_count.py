"""Expected number of distinct experts against simulated routing, and its limits."""

import numpy as np
import pytest

from meshwright.cost.serving.distinct_expert_count import expected_distinct_experts


def _simulated(experts, chosen, tokens, weights, seed):
    """Return the mean number of distinct experts of tokens that each draw ``chosen`` without replacement."""
    random = np.random.default_rng(seed)
    counts = []
    for _ in range(min(10_000, 4_000_000 // (tokens * experts))):
        keys = random.exponential(size=(tokens, experts)) / weights
        counts.append(len(np.unique(np.argsort(keys, axis=1)[:, :chosen])))
    return np.mean(counts)


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(8, 2, 3), (128, 4, 16), (256, 8, 64)])
def test_even_routing_equals_its_simulation(experts, chosen, tokens):
    simulated = _simulated(experts, chosen, tokens, np.ones(experts), seed=1)
    assert expected_distinct_experts(experts, chosen, tokens) == pytest.approx(simulated, rel=0.01)


def test_skewed_routing_equals_its_simulation_where_few_are_chosen():
    shares = np.random.default_rng(2).lognormal(sigma=1.0, size=128)
    shares /= shares.sum()
    simulated = _simulated(128, 1, 50, shares, seed=3)
    assert expected_distinct_experts(128, 1, 50, shares) == pytest.approx(simulated, rel=0.01)
    assert expected_distinct_experts(128, 1, 50, shares) < expected_distinct_experts(128, 1, 50)


def test_one_token_chooses_k_and_many_choose_all():
    assert expected_distinct_experts(256, 8, 1) == pytest.approx(8)
    assert expected_distinct_experts(256, 8, 1e6) == pytest.approx(256)
    assert expected_distinct_experts(8, 8, 1) == pytest.approx(8)
    counts = expected_distinct_experts(256, 8, np.array([0, 1, 2, 4, 8]))
    assert counts[0] == 0
    assert (np.diff(counts) > 0).all()
