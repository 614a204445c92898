"""Show the progress of a long verb on standard error: a bar on a terminal, occasional lines elsewhere."""

import shutil
import sys
from dataclasses import dataclass, field
from time import monotonic

LINE_EVERY_S = 15.0
"""Interval of lines without a terminal: short verbs stay silent."""
BAR_CELLS = 10
_drawn = [False]


@dataclass
class ProgressLine:
    """Display of the current activity and the completed fraction."""

    printed_at: float = field(default_factory=monotonic)

    def __call__(self, what: str, part: float) -> None:
        """Show progress if it is time to."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{progress_bar(what, part, shutil.get_terminal_size().columns)}")
            sys.stderr.flush()
            _drawn[0] = True
        elif monotonic() - self.printed_at >= LINE_EVERY_S:
            self.printed_at = monotonic()
            sys.stderr.write(f"{part:4.0%} {what}\n")
            sys.stderr.flush()


def progress_bar(what: str, part: float, width: int) -> str:
    """Return one line of a terminal, narrower than ``width``, that covers the line before it."""
    done = round(BAR_CELLS * min(max(part, 0.0), 1.0))
    room = max(width - BAR_CELLS - 8, 0)
    return f"{'#' * done}{'.' * (BAR_CELLS - done)} {part:4.0%} {what[:room]:{room}}"


def erase_bar() -> None:
    """Erase the bar, if there is one, before anything else is printed."""
    if _drawn[0]:
        _drawn[0] = False
        sys.stderr.write("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r")
        sys.stderr.flush()
