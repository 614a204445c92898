"""Notice that steps have become much longer, so that their cause is looked for at once. Pure.

A look costs all ranks an exchange, so after one that found nothing the next may follow only twice as many steps later.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from meshwright.runtime.faults.step_series import LAST, LAST_S

LONGER = 1.7
"""Times the median step that is much longer; jitter of shared hosts stays below."""
KEPT, LEAST = 50, 4
"""Steps that the median is taken of, at most and at least."""
FIRST_PAUSE, LONGEST_PAUSE = 8, 1024
"""Steps until the next look after one that found nothing, at first and at most."""


@dataclass
class StepWatch:
    """The last step times of a rank. The first step of a process is not counted."""

    usual: "deque[float]" = field(default_factory=lambda: deque(maxlen=KEPT))
    longer: list[float] = field(default_factory=list)
    begun: bool = False
    pause: int = FIRST_PAUSE
    silent: int = 0

    def add(self, seconds: float) -> bool:
        """Add a step and return whether its cause should be looked for."""
        if not self.begun:
            self.begun = True
            return False
        self.silent = max(0, self.silent - 1)
        if len(self.usual) < LEAST or seconds <= LONGER * median(self.usual):
            self.usual.extend([*self.longer, seconds])
            self.longer.clear()
            return False
        self.longer.append(seconds)
        return len(self.longer) >= LAST and sum(self.longer) >= LAST_S and not self.silent

    def looked(self, *, found: bool) -> None:
        """Begin again after a look: the present length is usual if something was found."""
        if found:
            self.usual.clear()
            self.usual.extend(self.longer)
            self.pause = FIRST_PAUSE
        elif self.longer:
            self.pause = min(2 * self.pause, LONGEST_PAUSE)
        self.longer.clear()
        self.silent = self.pause
