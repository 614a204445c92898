"""Standard error whose reader has gone: what is shown is lost, whoever shows it goes on."""

import io
import os
import sys

from meshwright.runtime.progress.display import display
from meshwright.runtime.progress.lossy_console import LossyStream, lossy_console


def broken_pipe():
    """A text stream whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w", encoding="utf-8", buffering=1)


def test_a_reader_that_goes_away_ends_the_lines_and_nothing_else(monkeypatch):
    with broken_pipe() as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with display(lossy_console(), 4) as shown:
            shown.note("nobody reads this")
            shown.note("nor this")
        stream.write("and what others write fails at nothing\n")
        stream.flush()


def test_a_bar_on_a_terminal_that_is_closed_ends_quietly(monkeypatch):
    leader, terminal = os.openpty()
    with open(terminal, "w", encoding="utf-8", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        console = lossy_console()
        assert console.is_terminal
        with display(console, 4) as shown:
            os.close(leader)
            shown.note("nobody reads this")


def test_what_is_written_to_a_stream_that_is_read_arrives():
    out = io.StringIO()
    stream = LossyStream(out)
    stream.write("a line\n")
    stream.flush()
    assert (out.getvalue(), stream.isatty()) == ("a line\n", False)
