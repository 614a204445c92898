"""The remaining time of a phase in its progress texts."""

import pytest

from meshwright.verbs.plan.progress_time import with_remaining_time


def texts(*reports):
    """Texts of a phase whose reports come at these seconds with these finished parts."""
    heard, seconds = [], iter(second for second, _ in reports)
    told = with_remaining_time(lambda what, part: heard.append((what, part)), lambda: next(seconds))
    for _, part in reports:
        told("plans", part)
    assert [part for _, part in heard] == [part for _, part in reports]
    return [what for what, _ in heard]


def test_the_rest_takes_as_long_as_the_pace_since_the_first_report_says():
    assert texts((100.0, 0.0), (110.0, 0.25), (120.0, 0.5), (140.0, 1.0)) == [
        "plans",
        "plans; about 30 s left",
        "plans; about 20 s left",
        "plans",
    ]
    assert texts((0.0, 0.5), (10.0, 0.75)) == ["plans", "plans; about 10 s left"]


def test_long_phases_have_minutes():
    assert texts((0.0, 0.0), (60.0, 0.1))[-1] == "plans; about 9 min left"


@pytest.mark.parametrize("report", [(0.5, 0.5), (10.0, 0.01)])
def test_a_pace_that_is_not_known_yet_says_nothing(report):
    assert texts((0.0, 0.0), report)[-1] == "plans"
