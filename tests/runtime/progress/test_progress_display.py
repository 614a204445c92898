import io
import re
from dataclasses import replace

import pytest
from example_step_metrics import METRICS
from rich.console import Console

from meshwright.runtime.progress.display import display, duration


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def lines_of(count, pause_s, steps=100, **changes):
    out, clock = io.StringIO(), Clock()
    with display(Console(file=out, width=20), steps, clock) as shown:
        for step in range(count):
            shown.show(replace(METRICS, step=step, **changes))
            clock.now += pause_s
    return out.getvalue().splitlines()


def test_a_line_says_what_people_ask_for_and_is_never_broken():
    (line,) = lines_of(1, 1.0)
    assert line == (
        "step 0  loss 2.5124  norm 0.71  lr 0.0003  53.50 k tokens/s  MFU 41.2%  3.00 GiB  3:18 to go"
    )


def test_what_is_not_known_is_left_out():
    (line,) = lines_of(1, 1.0, mfu=None, memory_bytes=None, grad_norm=None)
    assert not re.search("MFU|GiB|norm|None", line)


@pytest.mark.parametrize(
    ("count", "pause_s", "expected"),
    [(5, 1.0, [0, 1, 2, 3, 4]), (10, 0.25, [0, 4, 8]), (100, 0.0, [0, 99]), (3, 100.0, [0, 1, 2])],
)
def test_quick_steps_share_a_line_a_second_and_the_last_one_is_shown(count, pause_s, expected):
    assert [int(line.split()[1]) for line in lines_of(count, pause_s)] == expected


def test_the_time_to_go_follows_the_last_steps():
    out = io.StringIO()
    with display(Console(file=out), 1000, Clock()) as shown:
        for step in range(999):
            shown.show(replace(METRICS, step=step, step_time_s=100.0 if step == 0 else 1.0))
        shown.show(replace(METRICS, step=999))
    assert out.getvalue().splitlines()[-1].endswith("0:00 to go")
    assert duration(3723) == "1:02:03"
    assert duration(59.6) == "1:00"


def test_a_terminal_gets_a_bar_and_notes_above_it():
    out = io.StringIO()
    with display(Console(file=out, force_terminal=True, width=200), 4) as shown:
        shown.note("held-out loss [2.1]")
        for step in range(4):
            shown.show(replace(METRICS, step=step))
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert "held-out loss [2.1]" in plain
    assert "4/4 loss 2.5124" in plain


def test_a_program_that_reads_json_gets_nothing(capsys):
    with display(None, 10) as shown:
        shown.show(METRICS)
        shown.note("a note")
    assert capsys.readouterr() == ("", "")
