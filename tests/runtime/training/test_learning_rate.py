from itertools import pairwise
from math import pi, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.runtime.training.learning_rate import LR_SCHEDULES, Course, rate_factor

COURSES = st.integers(1, 400).flatmap(
    lambda steps: st.builds(
        Course,
        steps=st.just(steps),
        warmup_steps=st.integers(0, steps),
        floor=st.floats(0, 1),
        decay_steps=st.integers(1, steps),
    )
)


def factors(schedule, course, beyond=0):
    return [rate_factor(schedule, step, course) for step in range(course.steps + beyond)]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("schedule", LR_SCHEDULES)
@settings(deadline=None, max_examples=80)
@given(course=COURSES)
def test_factors_rise_in_the_warm_up_then_never_rise_and_stay_between_floor_and_one(schedule, course):
    found = factors(schedule, course, beyond=5)
    warm = found[: course.warmup_steps]
    assert all(0 < factor <= 1 for factor in warm)
    assert warm == sorted(warm)
    assert warm[-1:] in ([], [1.0])
    rest = found[course.warmup_steps :]
    assert all(course.floor <= factor <= 1 for factor in rest)
    assert all(after <= before + 1e-12 for before, after in pairwise(rest))


def steepest(schedule, course):
    """The largest change from a step to the next behind the warm-up, from the formulas."""
    steps, warm = course.steps - course.warmup_steps, max(1, course.warmup_steps)
    return (1 - course.floor) * {
        "constant": lambda: 0.0,
        "cosine": lambda: pi / 2 / steps,
        "linear": lambda: 1 / steps,
        "wsd": lambda: sqrt(1 / min(steps, course.decay_steps)),
        "inverse-sqrt": lambda: (1 - sqrt(warm / (warm + 1))) / max(1e-9, 1 - course.floor),
    }[schedule]()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("schedule", LR_SCHEDULES)
@settings(deadline=None, max_examples=48)
@given(course=COURSES.filter(lambda course: course.warmup_steps < course.steps))
def test_there_are_no_jumps(schedule, course):
    found = factors(schedule, course, beyond=1)[max(0, course.warmup_steps - 1) :]
    bound = steepest(schedule, course) + 1e-9
    assert all(abs(after - before) <= bound for before, after in pairwise(found))


@pytest.mark.parametrize("schedule", LR_SCHEDULES)
def test_a_longer_run_has_smaller_jumps(schedule):
    def largest_jump(steps):
        course = Course(steps=steps, warmup_steps=steps // 10, decay_steps=steps // 5)
        return max(abs(after - before) for before, after in pairwise(factors(schedule, course)))

    assert largest_jump(10_000) < 0.03
    assert largest_jump(10_000) < max(largest_jump(100), 1e-12)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]),
        ("inverse-sqrt", [0.5, 1, sqrt(2 / 3), sqrt(2 / 4), sqrt(2 / 5), sqrt(2 / 6), *[None] * 4]),
        ("wsd", [0.5, 1, 1, 1, 1, 1, 1, 0.2 + 0.8 * (1 - sqrt(1 / 4)), 0.2 + 0.8 * (1 - sqrt(2 / 4)), None]),
        ("cosine", [0.5, 1, 1, *[None] * 3, 0.6, *[None] * 3]),
    ],
)
def test_values_by_hand(schedule, expected):
    course = Course(steps=10, warmup_steps=2, floor=0.2, decay_steps=4)
    found = factors(schedule, course)
    assert found == [pytest.approx(found[i] if value is None else value) for i, value in enumerate(expected)]


@pytest.mark.parametrize("schedule", sorted(LR_SCHEDULES.keys() - {"constant", "inverse-sqrt"}))
def test_what_comes_after_the_last_step_is_the_floor(schedule):
    course = Course(steps=10, warmup_steps=2, floor=0.2, decay_steps=4)
    assert [rate_factor(schedule, step, course) for step in (10, 11, 10**9)] == [pytest.approx(0.2)] * 3
