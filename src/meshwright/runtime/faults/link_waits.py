"""Waits of a rank for operations among the same ranks, and the step from which on they are longer.

A wait includes the time until the slowest rank arrives, so the shortest of a step counts: with several operations in a
step some rank is always in time. A slow link lengthens all of them.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from statistics import fmean

from meshwright.runtime.faults.step_series import FLOOR_S, level_change

KEPT = 256
"""Steps whose waits are kept."""
BEFORE = 20
"""Steps before the last healthy probe that show how long ranks usually wait."""
LONGER = 2.0
"""Times the usual shortest wait that is a suspicion, which a probe then confirms."""
Waits = dict[int, float]
"""Seconds by step."""


@dataclass
class LinkWaits:
    """The shortest wait of each of a rank's last steps by ranks, in seconds."""

    steps: "deque[tuple[int, dict[tuple[int, ...], float]]]" = field(
        default_factory=lambda: deque(maxlen=KEPT)
    )

    def add(self, step: int, least_s: Mapping[tuple[int, ...], float]) -> None:
        """Append a step."""
        self.steps.append((step, dict(least_s)))

    def longer(self, healthy_step: int) -> bool:
        """Return whether waits among any ranks became longer behind ``healthy_step``."""
        groups = {ranks for _, least_s in self.steps for ranks in least_s}
        return any(longer_since([self._shortest((ranks,))], healthy_step) is not None for ranks in groups)

    def joining(self, ends: Collection[int]) -> Waits:
        """Return the shortest wait of each step for operations in which all of ``ends`` take part."""
        return self._shortest(
            {ranks for _, least_s in self.steps for ranks in least_s if set(ends) <= set(ranks)}
        )

    def _shortest(self, groups: Collection[tuple[int, ...]]) -> Waits:
        shortest = (
            (step, min((least_s.get(ranks, inf) for ranks in groups), default=inf))
            for step, least_s in self.steps
        )
        return {step: wait for step, wait in shortest if wait < inf}


def longer_since(everyone: Iterable[Waits], healthy_step: int) -> int | None:
    """Return the step behind ``healthy_step`` from which on waits are longer; None if they are not.

    Those of several ranks are averaged (geometrically). The first step, in which ranks begin one by one, is left out.
    """
    known: Sequence[Waits] = [waits for waits in everyone if waits]
    steps = sorted({step for waits in known for step in waits})[1:]
    steps = [step for step in steps if step > healthy_step - BEFORE]
    logs = [fmean(log(max(waits[step], FLOOR_S)) for waits in known if step in waits) for step in steps]
    at = level_change(map(exp, logs), LONGER)
    return steps[at] if at is not None and steps[at] > healthy_step else None
