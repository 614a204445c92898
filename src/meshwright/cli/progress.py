"""Progress of a long verb on standard error: one line on a terminal, one now and then elsewhere."""

import sys
from dataclasses import dataclass, field
from time import monotonic

LINE_EVERY_S = 15.0
"""Of what is no terminal: short verbs stay silent."""


@dataclass
class Telling:
    """Shows what is being done and which part of all is done."""

    told: float = field(default_factory=monotonic)

    def __call__(self, what: str, part: float) -> None:
        """Tell it, where it is time to."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{part:4.0%} {what:60.60}")
            sys.stderr.flush()
        elif monotonic() - self.told >= LINE_EVERY_S:
            self.told = monotonic()
            sys.stderr.write(f"{part:4.0%} {what}\n")
            sys.stderr.flush()
