"""The seconds that each rank computed and waited in each of its last steps, and where they changed. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEPT = 256
"""Steps of a series."""
LAST, LAST_S = 5, 0.3
"""Steps, and seconds of them together, that must all be long before their cause is looked for: the scheduler of a
shared host can favour one process for a few hundred milliseconds."""
FLOOR_S = 1e-6
"""Seconds below which durations count as equal: the resolution of what is measured."""
Seconds = NDArray[np.float64]


class StepSeconds(NamedTuple):
    """Seconds of a step of one rank: all of it but the waits for other ranks, and these."""

    busy_s: float
    waited_s: float


@dataclass
class StepSeries:
    """The last steps of every rank, by rank; all ranks have the same steps."""

    steps: list[int] = field(default_factory=list)
    of_rank: dict[int, list[StepSeconds]] = field(default_factory=dict)

    def add(self, steps: Sequence[int], everyone: Mapping[int, Sequence[StepSeconds]]) -> None:
        """Append steps."""
        self.steps = [*self.steps, *steps][-KEPT:]
        for rank, seconds in everyone.items():
            self.of_rank[rank] = [*self.of_rank.get(rank, ()), *seconds][-KEPT:]

    def busy(self, rank: int) -> Seconds:
        """Return the seconds that a rank computed in each step."""
        return np.array([one.busy_s for one in self.of_rank[rank]])

    def waited(self, rank: int) -> Seconds:
        """Return the seconds that a rank waited for others in each step."""
        return np.array([one.waited_s for one in self.of_rank[rank]])


def level_change(series: Iterable[float], factor: float) -> int | None:
    """Return the index from which on a series is ``factor`` times as high; None if it nowhere becomes so.

    The index minimises the squared errors of the logarithms around the means of both parts, of which the first may
    not be empty.
    """
    logs = np.log(np.maximum(np.array(list(series)), FLOOR_S))
    if len(logs) < 2:
        return None
    sums, lengths = np.cumsum(logs), np.arange(1, len(logs))
    before, after = sums[:-1] / lengths, (sums[-1] - sums[:-1]) / (len(logs) - lengths)
    # the sum of squares is the same for all, so that the squared errors are least where this is most
    explained = lengths * before**2 + (len(logs) - lengths) * after**2
    at = int(np.argmax(explained))
    return at + 1 if after[at] - before[at] > np.log(factor) else None
