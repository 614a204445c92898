"""The console of all renderings, and the formats of numbers."""

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from meshwright.units import GIB

WIDTH_OF_FILES = 100
CAUSAL_DIFFERS = 0.05
"""Relative difference of the two kinds of MFU above which the causal one is shown."""


class PipedConsole(Console):
    """A console that raises BrokenPipeError if its reader is gone; rich would exit with 1, which means "no"."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError; rich calls this instead of propagating the error."""
        raise BrokenPipeError


_current: ContextVar[Console | None] = ContextVar("current console", default=None)
AnyConsole = TypeVar("AnyConsole", bound=Console)


def console() -> Console:
    """Return standard output; colours only on a terminal, lines of fixed width otherwise."""
    current = _current.get()
    if current is not None:
        return current
    return PipedConsole(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)


@contextmanager
def printing_to(target: AnyConsole) -> Iterator[AnyConsole]:
    """Let all renderers print to another console."""
    token = _current.set(target)
    try:
        yield target
    finally:
        _current.reset(token)


@contextmanager
def limited_console(most_lines: int) -> Iterator[Console]:
    """Give a console whose blank lines are left out where it prints more than ``most_lines`` to standard output."""
    out = console()
    if _current.get() is not None:
        yield out
        return
    with out.capture() as captured:
        yield out
    lines = captured.get().splitlines()
    if len(lines) > most_lines:
        lines = [line for line in lines if line.strip()]
    print("\n".join(lines))


def plain_table(
    *columns: str, title: str | None = None, wrapped: Collection[str] = (), texts: Collection[str] = ()
) -> Table:
    """Return a table without frames; the first column and ``texts`` are left, the others right aligned.

    ``wrapped`` columns, or the first one, take several lines where the table is wider than the console.
    """
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        wraps = column in wrapped if wrapped else index == 0
        table.add_column(
            column, justify="left" if index == 0 or column in texts else "right", no_wrap=not wraps
        )
    return table


def printable(text: str) -> str:
    """Replace every character that a terminal or XML would not show."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def gib(value: float) -> str:
    """Format memory in GiB, without the unit, which the column's head has."""
    return f"{value / GIB:.2f}"


def percent(value: float | None) -> str:
    """Format a fraction in percent; a dash for None."""
    return "–" if value is None else f"{value:.1%}"


def shown_mfu(report: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return the name and value of the MFU to show: the causal one where the two differ by more than 5 %."""
    usual, causal = report["mfu"], report["mfu_causal"]
    if usual and causal is not None and abs(causal / usual - 1) > CAUSAL_DIFFERS:
        return "causal MFU", causal
    return "MFU", usual
