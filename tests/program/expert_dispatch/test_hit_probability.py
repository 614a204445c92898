"""Pólya's urn: exact where it should be, between what singles and pairs allow everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.expert_dispatch.dispatch_fanout import ExpertChoice, mean_dispatch_fanout
from meshwright.program.expert_dispatch.hit_probability import hit_probability, hit_probability_bound


@pytest.mark.parametrize(("experts", "chosen", "parts"), [(8, 2, 4), (64, 6, 8), (256, 8, 64), (12, 4, 1)])
def test_experts_that_are_chosen_alike(experts, chosen, parts):
    held = experts / parts
    singles = np.full(parts, chosen / parts)
    pairs = np.full(parts, held * (held - 1) / 2 * chosen * (chosen - 1) / (experts * (experts - 1)))
    assert hit_probability(singles, pairs, chosen).sum() == pytest.approx(
        mean_dispatch_fanout(parts, ExpertChoice(experts, chosen))
    )


@given(st.lists(st.integers(1, 50), min_size=2, max_size=7))
def test_between_what_singles_and_pairs_allow(tokens):
    """``tokens[m]`` tokens have m of their choices in a part."""
    chosen, weight = len(tokens) - 1, np.array(tokens) / sum(tokens)
    here = np.arange(chosen + 1)
    singles, pairs = (weight * here).sum(), (weight * here * (here - 1) / 2).sum()
    found = float(hit_probability(np.array([singles]), np.array([pairs]), chosen)[0])
    assert hit_probability_bound(np.array([singles]), np.array([pairs]), chosen)[0] <= found + 1e-12
    assert singles / chosen - 1e-12 <= found <= min(1, singles)
    if chosen <= 2:
        assert found == pytest.approx(1 - weight[0])


@pytest.mark.parametrize(("here", "chosen"), [(1, 4), (4, 4), (0, 3), (3, 8)])
def test_all_tokens_have_as_many_there(here, chosen):
    found = hit_probability(np.array([float(here)]), np.array([here * (here - 1) / 2]), chosen)
    assert found == pytest.approx([float(here > 0)])


@given(st.floats(0.05, 3), st.floats(0.05, 3))
def test_the_urn_itself(a, b):
    """What is drawn of an urn that begins with a and b balls and puts one more of a kind back."""
    chosen, p = 5, a / (a + b)
    singles = chosen * p
    pairs = chosen * (chosen - 1) / 2 * p * (a + 1) / (a + b + 1)
    missed = np.prod([(b + i) / (a + b + i) for i in range(chosen)])
    assert hit_probability(np.array([singles]), np.array([pairs]), chosen) == pytest.approx([1 - missed])
