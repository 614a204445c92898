"""The console that all renderings write to, and the numbers' forms."""

import sys

from rich.console import Console
from rich.table import Table

from meshwright.units import GIB

WIDTH_OF_FILES = 160


class PipedConsole(Console):
    """A console whose caller hears that nobody reads any more; rich would exit with 1, which means "no"."""

    def on_broken_pipe(self) -> None:
        """Called by rich instead of letting the error through."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output; colours only on a terminal, lines of a fixed width where it is none."""
    return PipedConsole(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)


def plain_table(*columns: str, title: str | None = None) -> Table:
    """A table without frames; the first column is left, the others right aligned."""
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def printable(text: str) -> str:
    """A text of other people with a sign for every character that a terminal or XML would not show."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def gib(value: float) -> str:
    """Memory in GiB, without the unit: the column's head says it."""
    return f"{value / GIB:.2f}"


def percent(value: float | None) -> str:
    """A fraction in percent; a dash where there is none."""
    return "–" if value is None else f"{value:.1%}"
