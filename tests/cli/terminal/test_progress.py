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


def test_a_bar_covers_the_one_before_it_and_fits_the_terminal():
    for width in (40, 80, 200):
        bars = [progress.progress_bar(what, part, width) for what, part in (("x" * 300, 0.5), ("", 1.0))]
        assert len({len(bar) for bar in bars}) == 1
        assert len(bars[0]) < width
    assert progress.progress_bar("best 2 s", 0.5, 80).startswith("#####..... " + " 50% best 2 s")


def test_a_bar_is_erased_before_the_answer(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    progress.ProgressLine()("best", 0.5)
    progress.erase_bar()
    progress.erase_bar()
    drawn, _, rest = capsys.readouterr().err.removeprefix("\r").partition("\r")
    assert drawn.strip().endswith("best")
    assert not rest.strip()
    assert rest.count("\r") == 1
