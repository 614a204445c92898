"""Show the progress of a long verb on standard error: one line on a terminal, occasional lines elsewhere."""

import sys
from dataclasses import dataclass, field
from time import monotonic

LINE_EVERY_S = 15.0
"""Interval of lines without a terminal: short verbs stay silent."""


@dataclass
class ProgressLine:
    """Display of the current activity and the completed fraction."""

    printed_at: float = field(default_factory=monotonic)

    def __call__(self, what: str, part: float) -> None:
        """Show progress if it is time to."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{part:4.0%} {what:60.60}")
            sys.stderr.flush()
        elif monotonic() - self.printed_at >= LINE_EVERY_S:
            self.printed_at = monotonic()
            sys.stderr.write(f"{part:4.0%} {what}\n")
            sys.stderr.flush()
