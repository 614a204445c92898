"""Progress where standard error is no terminal: silent at first, then a line now and then."""

import pytest

from meshwright.cli.terminal import progress


@pytest.fixture
def clock(monkeypatch):
    """Seconds that have passed, which the test sets."""
    passed = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: passed[0])
    return passed


def test_a_long_verb_says_now_and_then_how_far_it_is(clock, capsys):
    tell = progress.ProgressLine(printed_at=0.0)
    for second in range(0, 46, 5):
        clock[0] = float(second)
        tell("1F0", second / 50)
    assert capsys.readouterr().err == " 30% 1F0\n 60% 1F0\n 90% 1F0\n"


def test_a_short_one_says_nothing(clock, capsys):
    tell = progress.ProgressLine(printed_at=0.0)
    for second in range(15):
        clock[0] = float(second)
        tell("1F0", second / 15)
    assert capsys.readouterr().err == ""
