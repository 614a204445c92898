"""Zero-bubble lists against the makespans of the scheduler of Qi et al. (arXiv 2401.10241), and their memory."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.schedule import SCHEDULES
from meshwright.schedule.timeline import run
from meshwright.schedule.times import StageTimes, equal_times, rounded_times
from meshwright.schedule.zero_bubble import automatic_lists

# P, M, (F, I, W, message), makespan (end − start of the longest rank) at one and at two times 1F1B's memory
PUBLISHED = [
    (4, 8, (1, 1, 1, 0), 27, 24),
    (8, 24, (1, 1, 1, 0), 79, 72),
    (8, 64, (1, 1, 1, 0), 199, 192),
    (16, 48, (1, 1, 1, 0), 159, 144),
    (4, 8, (1, 1, 1, 0.1), 28.2, 24.6),
    (8, 24, (1, 1, 1, 0.1), 81.8, 73),
    (16, 64, (1, 1, 1, 0.1), 213, 194),
    (8, 24, (18.522, 18.086, 9.337, 0.601), 1310.405, 1152.599),
    (8, 32, (18.522, 18.086, 9.337, 0.601), 1677.965, 1475.602),
    (8, 64, (18.522, 18.086, 9.337, 0.601), 3148.205, 2945.842),
]
WITHIN = 1.03


def makespan(lists, forward, half, weight, message):
    seconds = {"F": forward, "I": half, "W": weight}
    return run(lists, lambda action: seconds[action.kind], message).makespan


def held(actions, kept):
    """Most memory along a list; F of a stage takes 1, I leaves ``kept`` of it."""
    change = {"F": 1.0, "I": kept - 1, "W": -kept}
    level = peak = 0.0
    for action in actions:
        level += change[action.kind]
        peak = max(peak, level)
    assert level == pytest.approx(0)
    return peak


@pytest.mark.parametrize(("p", "m", "times", "once", "twice"), PUBLISHED)
def test_makespans_come_close_to_the_published_ones(p, m, times, once, twice):
    forward, half, weight, message = times
    stages = StageTimes((forward,) * p, (half,) * p, (weight,) * p, message)
    for name, published in (("zb-h1", once), ("zb-h2", twice)):
        found = makespan(SCHEDULES[name].lists(p, m, 1, stages), *times)
        assert found <= WITHIN * published
        if message == 0:
            assert found == published


@pytest.mark.parametrize(("p", "m"), [(p, m) for p, m in product((2, 3, 4, 8), (8, 12, 24)) if m >= 2 * p])
def test_equal_passes_reach_the_hand_made_schedules(p, m):
    """H1 keeps a bubble of P − 1 (section 2), ours of one more for an odd P; H2 keeps none."""
    assert makespan(SCHEDULES["zb-h1"].generate(p, m, 1), 1, 1, 1, 0) == 3 * m + p - 1 + p % 2
    assert makespan(SCHEDULES["zb-h2"].generate(p, m, 1), 1, 1, 1, 0) == 3 * m


positive = st.floats(0.1, 5)


@given(
    st.integers(1, 6),
    st.integers(1, 14),
    positive,
    positive,
    positive,
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from((0.5, 1.0, 2.0)),
)
@settings(max_examples=60, deadline=None)
def test_no_list_passes_its_memory_limit(p, m, forward, half, weight, message, kept, limit):
    times = rounded_times([forward] * p, [half] * p, [weight] * p, message, kept)
    lists = automatic_lists(m, tuple(range(p)), times, limit)
    assert [len(actions) for actions in lists] == [3 * m] * p
    assert all(held(actions, times.kept) <= max(1, limit * p) + 1e-6 for actions in lists)
    run(lists, lambda action: 1)


def test_a_slow_last_stage_is_fed_first():
    """With a head four times as long as a layer the last rank never waits after its first pass."""
    times = StageTimes((1, 1, 1, 4), (1, 1, 1, 4), (1, 1, 1, 4))
    table = run(SCHEDULES["zb-h2"].lists(4, 16, 1, times), lambda a: 4 if a.stage == 3 else 1)
    assert table.end[3][-1] - table.start[3][0] == 16 * 12


def test_only_ratios_matter_and_close_ones_are_one():
    one = rounded_times([1.0, 1.0], [2.0, 2.0], [1.0, 1.0], 0.1, 0.5)
    assert one == rounded_times([10.0, 10.0], [20.0, 20.0], [10.0, 10.0], 1.0, 0.5)
    assert one == rounded_times([1.001, 1.0], [2.0, 2.0], [1.0, 1.0], 0.1, 0.501)
    assert rounded_times([0.0], [0.0], [0.0], 0.0, 0.5).forward == equal_times(1).forward
