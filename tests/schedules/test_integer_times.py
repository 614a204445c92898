"""Times in ticks are whole, and exact where machine words allow it."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.schedules.integer_times import MOST_TICKS, three, whole_times
from meshwright.schedules.stage_times import StageTimes

SECONDS = st.floats(1e-9, 1e9) | st.integers(0, 1000).map(lambda n: n / 100) | st.integers(1, 10**6)


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=5), SECONDS)
def test_ticks_are_whole_and_never_longer(stages, message):
    times = StageTimes(*zip(*stages, strict=True), message)
    ticks = whole_times(times)
    longest = max(message, *(second for row in stages for second in row))
    for ours, given_times in zip(three(ticks.times), three(times), strict=True):
        for whole, seconds in zip(ours, given_times, strict=True):
            assert whole == int(whole) <= max(MOST_TICKS, longest)
            assert (
                0
                <= seconds - whole / ticks.in_unit
                <= 2e-10 * longest + 1e-15 * seconds + (ticks.in_unit == 1)
            )


def test_decimals_are_exact():
    ticks = whole_times(StageTimes((18.522,), (18.086,), (9.337,), 0.601))
    assert ticks.in_unit == 1000
    assert (ticks.times.forward, ticks.times.message) == ((18522,), 601)
