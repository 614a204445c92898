"""ZB-V: no bubble for equal passes with 1F1B's memory (Qi et al., arXiv 2405.15362), and other stages and limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.stage_times import equal_times, rounded_times
from meshwright.schedules.timeline import played

KIND = SCHEDULES["zb-v"]
ROUNDING = 1e-6
PUBLISHED = [(4, 8), (4, 12), (8, 24), (8, 32), (8, 64)]


def makespan(lists, times):
    return played(lists, times, StageChains(len(times.forward))).makespan


@pytest.mark.parametrize(
    ("p", "m"), [*PUBLISHED, (1, 2), (2, 4), (3, 6), (5, 13), (6, 12), (7, 14), (16, 32)]
)
def test_equal_passes_without_messages_have_no_bubble_and_hold_no_more_than_1f1b(p, m):
    lists = KIND.lists(p, m, 2)
    assert makespan(lists, equal_times(2 * p)) == 6 * m
    assert max(peaks(lists, StageChains(2 * p))) <= 2 * p


def test_every_rank_begins_with_as_many_forward_passes_as_its_memory_allows():
    """2P of a chunk; rank r of its first chunk alone at the beginning, and both in turn as soon as data is back."""
    lists = KIND.lists(4, 8, 2)
    assert [next(i for i, a in enumerate(actions) if a.kind == "I") for actions in lists] == [8] * 4
    assert [next(i for i, a in enumerate(actions) if a.stage >= 4) for actions in lists] == [7, 5, 3, 1]


positive = st.floats(0.1, 5)
stages = st.integers(1, 5).flatmap(
    lambda p: st.lists(st.tuples(positive, positive, positive), min_size=2 * p, max_size=2 * p)
)


@given(stages, st.integers(1, 12), st.floats(0, 1), st.floats(0, 1), st.floats(0.2, 5))
@settings(max_examples=60, deadline=None)
def test_lists_for_any_stages_are_whole_and_keep_any_limit(stages, m, message, kept, micro_batches):
    p, limit = len(stages) // 2, 2 * micro_batches
    times = rounded_times(*zip(*stages, strict=True), message, kept)
    lists = KIND.lists(p, m, 2, times, Knobs(memory_limit=limit))
    assert [len(actions) for actions in lists] == [6 * m] * p
    assert check_lists(lists, memory_limit=max(2.0, limit) + ROUNDING, kept=times.kept) == []


@pytest.mark.parametrize("p", [2, 4, 8])
def test_a_measured_profile_leaves_little_bubble(p):
    """The times of the paper's appendix, half of them for each of two chunks; 1F1B has 13 to 24 % here."""
    times = rounded_times([9.261] * 2 * p, [9.043] * 2 * p, [4.6685] * 2 * p, 0.601, 0.5)
    work = 4 * p * 2 * (times.forward[0] + times.input[0] + times.weight[0])
    assert makespan(KIND.lists(p, 4 * p, 2, times), times) < 1.08 * work
