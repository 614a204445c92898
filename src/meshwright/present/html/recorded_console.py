"""Record the text and tables that the renderers of the terminal print, to convert them to HTML."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from meshwright.present.console import printing_to

Item = str | Table
WIDTH = 10_000
"""Nothing is wrapped: the browser does that."""


class RecordedConsole(Console):
    """A console whose prints are kept as ``items``: markup of rich, or tables."""

    def __init__(self) -> None:
        super().__init__(file=StringIO(), width=WIDTH, highlight=False)
        self.items: list[Item] = []

    def print(self, *objects: Any, **_: Any) -> None:
        """Keep the objects."""
        self.items += [one if isinstance(one, Table) else str(one) for one in objects or ("",)]


@contextmanager
def recorded() -> Iterator[RecordedConsole]:
    """Let renderers print to a recorded console."""
    with printing_to(RecordedConsole()) as console:
        yield console
