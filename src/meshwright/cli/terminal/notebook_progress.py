"""Show the progress of a long call in a notebook: one line below the cell, which is empty when the call has ended."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from time import monotonic
from typing import Any

from meshwright.cli.terminal.progress import progress_bar

UPDATES_EVERY_S = 0.2
WIDTH = 100


@contextmanager
def notebook_progress() -> Iterator[Callable[[str, float], None] | None]:
    """Give a display of the current activity and the completed fraction; None outside of a notebook."""
    display = _display_of_notebook()
    if display is None:
        yield None
        return
    line = _Line(display)
    try:
        yield line
    finally:
        line.erase()


def _display_of_notebook() -> Any:
    """Return IPython's display module where a kernel runs this code; its front end can replace what it has shown."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return sys.modules.get("IPython.display") if getattr(shell, "kernel", None) is not None else None


class _Line:
    """A line that is replaced as the call goes on."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None
        self._shown_at = float("-inf")

    def __call__(self, what: str, part: float) -> None:
        """Show progress if it is time to."""
        if monotonic() - self._shown_at < UPDATES_EVERY_S:
            return
        self._shown_at = monotonic()
        text = progress_bar(what, part, WIDTH).rstrip()
        bar = (
            f'<progress max="1" value="{min(max(part, 0.0), 1.0):.3f}"></progress> {part:.0%} {escape(what)}'
        )
        self._show({"text/plain": text, "text/html": bar})

    def erase(self) -> None:
        """Leave nothing where the line was."""
        if self._handle is not None:
            self._show({"text/plain": "", "text/html": ""})

    def _show(self, data: dict[str, str]) -> None:
        if self._handle is None:
            self._handle = self._display.display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
