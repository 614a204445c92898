"""Zero-bubble lists against the makespans of the scheduler of Qi et al. (arXiv 2401.10241), and their memory."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.stage_times import StageTimes, equal_times, rounded_times
from meshwright.schedules.timeline import played, run

PROFILE = (18.522, 18.086, 9.337, 0.601)
# P, M, (F, I, W, message), makespan (end − start of the longest rank) at one and at two times 1F1B's memory
PUBLISHED = [
    (4, 8, (1, 1, 1, 0), 27, 24),
    (4, 12, (1, 1, 1, 0), 39, 36),
    (8, 24, (1, 1, 1, 0), 79, 72),
    (8, 32, (1, 1, 1, 0), 103, 96),
    (8, 64, (1, 1, 1, 0), 199, 192),
    (16, 48, (1, 1, 1, 0), 159, 144),
    (4, 8, (1, 1, 1, 0.1), 28.2, 24.6),
    (8, 24, (1, 1, 1, 0.1), 81.8, 73),
    (16, 64, (1, 1, 1, 0.1), 213, 194),
    (8, 24, PROFILE, 1310.405, 1152.599),
    (8, 32, PROFILE, 1677.965, 1475.602),
    (8, 64, PROFILE, 3148.205, 2945.842),
]
ROUNDING = 1e-6
NAMED = {"zb-h1": 2, "zb-h2": 4}
"""Limits per rank of the pipeline, in the unit in which F adds 2."""


def stage_times(ranks, times):
    forward, half, weight, message = times
    return StageTimes((forward,) * ranks, (half,) * ranks, (weight,) * ranks, message)


def limited(ranks, micro_batches, times, limit):
    return SCHEDULES["zero-bubble"].lists(ranks, micro_batches, 1, times, Knobs(memory_limit=limit))


def makespan(lists, times):
    return played(lists, times, StageChains(len(times.forward))).makespan


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(("p", "m", "times", "once", "twice"), PUBLISHED)
def test_makespans_are_no_longer_than_the_published_ones_within_the_same_memory(p, m, times, once, twice):
    stages = stage_times(p, times)
    for limit, published in ((2 * p, once), (4 * p, twice)):
        lists = limited(p, m, stages, limit)
        assert makespan(lists, stages) <= published + ROUNDING * published
        assert max(peaks(lists, StageChains(p))) <= limit


def test_with_three_micro_batches_a_rank_the_profile_is_as_short_as_it_can_be():
    """The way down, all F and I of the last rank, the way up and the last W of the first rank: none is shorter."""
    forward, half, weight, message = PROFILE
    least = 7 * (forward + half) + 24 * (forward + half) + 14 * message + weight
    stages = stage_times(8, PROFILE)
    assert makespan(limited(8, 24, stages, 32), stages) == pytest.approx(least)


@pytest.mark.parametrize(
    ("p", "m"), [(p, m) for p, m in product((2, 3, 4, 5, 8), (10, 12, 24)) if m >= 2 * p]
)
def test_equal_passes_reach_the_hand_made_schedules(p, m):
    """H1 keeps a bubble of P − 1, H2 none (section 2); without a limit in the plan the memory is that of H1."""
    equal = equal_times(p)
    assert makespan(SCHEDULES["zb-h1"].lists(p, m, 1), equal) == 3 * m + p - 1
    assert makespan(SCHEDULES["zb-h2"].lists(p, m, 1), equal) == 3 * m
    assert SCHEDULES["zero-bubble"].lists(p, m, 1) == SCHEDULES["zb-h1"].lists(p, m, 1)


@pytest.mark.parametrize("name", NAMED)
def test_the_names_are_limits(name):
    times = stage_times(6, (1, 1.3, 0.7, 0.2))
    lists = SCHEDULES[name].lists(6, 20, 1, times)
    assert lists == limited(6, 20, times, NAMED[name] * 6)
    assert max(peaks(lists, StageChains(6))) <= NAMED[name] * 6


def test_less_memory_makes_it_longer_and_one_micro_batch_at_a_time_is_the_end_of_it():
    equal = equal_times(4)
    lengths = [makespan(limited(4, 12, equal, limit), equal) for limit in (2, 4, 6, 8, 12, 16)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 2 * lengths[-1]
    assert limited(4, 12, equal, 0.5) == limited(4, 12, equal, 2)


positive = st.floats(0.1, 5)
unequal = st.lists(st.tuples(positive, positive, positive), min_size=1, max_size=6)


@given(unequal, st.integers(1, 14), st.floats(0, 1), st.floats(0, 1), st.floats(0.2, 5))
@settings(max_examples=80, deadline=None)
def test_lists_for_any_stages_are_whole_and_keep_any_limit(stages, m, message, kept, micro_batches):
    p, limit = len(stages), 2 * micro_batches
    times = rounded_times(*zip(*stages, strict=True), message, kept)
    lists = limited(p, m, times, limit)
    assert [len(actions) for actions in lists] == [3 * m] * p
    assert check_lists(lists, memory_limit=max(2.0, limit) + ROUNDING, kept=times.kept) == []


@given(unequal, st.integers(1, 14), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_no_list_is_longer_than_1f1b_within_its_memory(stages, m, message):
    p = len(stages)
    times = rounded_times(*zip(*stages, strict=True), message, 0.5)
    usual = SCHEDULES["1f1b"].lists(p, m, 1)
    assert makespan(limited(p, m, times, None), times) <= makespan(usual, times) + ROUNDING


def test_a_slow_last_stage_is_fed_first():
    """With a head four times as long as a layer the last rank never waits after its first pass."""
    times = StageTimes((1, 1, 1, 4), (1, 1, 1, 4), (1, 1, 1, 4))
    table = run(SCHEDULES["zb-h2"].lists(4, 16, 1, times), lambda a: 4 if a.stage == 3 else 1)
    assert table.end[3][-1] - table.start[3][0] == 16 * 12


@pytest.mark.slow
def test_long_pipelines_are_made_from_a_comparison_of_shorter_ones():
    """64 ranks and 2048 micro-batches take hardly longer than the busiest rank works."""
    draw = random.Random(64)
    forward = [draw.uniform(0.9, 1.1) for _ in range(64)]
    times = rounded_times(forward, forward, forward, 0.05, 0.5)
    lists = limited(64, 2048, times, None)
    busiest = 2048 * max(map(sum, zip(times.forward, times.input, times.weight, strict=True)))
    assert busiest <= makespan(lists, times) < 1.06 * busiest


def test_only_ratios_matter_and_close_ones_are_one():
    one = rounded_times([1.0, 1.0], [2.0, 2.0], [1.0, 1.0], 0.1, 0.5)
    assert one == rounded_times([10.0, 10.0], [20.0, 20.0], [10.0, 10.0], 1.0, 0.5)
    assert one == rounded_times([1.001, 1.0], [2.0, 2.0], [1.0, 1.0], 0.1, 0.501)
    assert rounded_times([0.0], [0.0], [0.0], 0.0, 0.5).forward == equal_times(1).forward
