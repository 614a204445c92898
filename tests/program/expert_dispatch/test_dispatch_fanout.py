"""How many parts of the experts a token reaches: every choice of a small model counted, and limits."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.expert_dispatch.dispatch_fanout import ExpertChoice, mean_dispatch_fanout


def counted(parts, choice):
    """The mean over all choices that the router may take, each as likely as any other."""
    of_group = choice.experts // choice.groups
    of_part = choice.experts // parts
    found = []
    for groups in combinations(range(choice.groups), choice.chosen_groups):
        allowed = [e for e in range(choice.experts) if e // of_group in groups]
        found += [len({e // of_part for e in chosen}) for chosen in combinations(allowed, choice.chosen)]
    return np.mean(found)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("chosen", [1, 2, 3, 4])
def test_every_choice_counted(parts, chosen):
    choice = ExpertChoice(experts=12, chosen=chosen)
    assert mean_dispatch_fanout(parts, choice) == pytest.approx(counted(parts, choice))


@pytest.mark.parametrize("parts", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(("groups", "limit"), [(4, 2), (8, 3), (2, 1), (8, 8), (1, 1)])
def test_every_choice_in_groups_counted(parts, groups, limit):
    choice = ExpertChoice(experts=16, chosen=2, groups=groups, chosen_groups=limit)
    assert mean_dispatch_fanout(parts, choice) == pytest.approx(counted(parts, choice))


@given(
    parts=st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
    experts=st.sampled_from([64, 128, 256]),
    chosen=st.integers(1, 16),
)
def test_between_one_and_every_part_or_expert(parts, experts, chosen):
    found = mean_dispatch_fanout(parts, ExpertChoice(experts, chosen))
    assert 1 - 1e-12 <= found <= min(parts, chosen) + 1e-12
    assert mean_dispatch_fanout(parts, ExpertChoice(experts, chosen + 1)) >= found
    assert mean_dispatch_fanout(2 * parts, ExpertChoice(experts, chosen)) >= found


def test_deepseek_v3_reaches_no_more_than_half_of_its_eight_nodes():
    limited, free = ExpertChoice(256, 8, 8, 4), ExpertChoice(256, 8)
    assert mean_dispatch_fanout(8, limited) == pytest.approx(4 * (1 - comb(96, 8) / comb(128, 8)))
    assert mean_dispatch_fanout(8, free) == pytest.approx(8 * (1 - comb(224, 8) / comb(256, 8)))
    assert mean_dispatch_fanout(8, limited) < 4 < 5 < mean_dispatch_fanout(8, free)


def test_mixtral_on_eight_ranks_sends_both_copies_apart():
    assert mean_dispatch_fanout(8, ExpertChoice(8, 2)) == pytest.approx(2)


def test_arrays_are_their_numbers():
    choice, parts = ExpertChoice(64, 6, 8, 3), np.array([[1, 2], [8, 16]])
    found = mean_dispatch_fanout(parts, choice)
    assert found.shape == parts.shape
    assert found.ravel().tolist() == [mean_dispatch_fanout(int(n), choice) for n in parts.ravel()]


def test_parts_that_cut_groups_unevenly_are_counted_without_groups():
    assert mean_dispatch_fanout(6, ExpertChoice(24, 4, 4, 2)) == mean_dispatch_fanout(6, ExpertChoice(24, 4))
