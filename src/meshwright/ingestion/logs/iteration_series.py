"""Order the iterations of a log: find restarts, merge ranks, drop warm-up.

Ranks that report the same iteration count once, with the slowest of them. A new start is an iteration that goes back:
behind the same rank's last report or, without rank marks, behind the last ``OPEN`` iterations, within which lines of
several ranks may overtake each other. If an iteration was run again, the later run counts. Ranks without marks whose
output comes in blocks look like restarts; then the last block counts.

Warm-up of every start: the reports within its first ``WARM_UP`` iterations, and as many after them as differ by more
than ``NEAR`` from the median of all, up to half of the start's reports. A report over an interval of iterations is one
report; the first of a start covers its first iteration and is always warm-up.

Memory is bounded: above ``MOST`` reports every second one is dropped, repeatedly.
"""

from array import array
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

OPEN = 3
WARM_UP = 3
NEAR = 0.2
MOST = 2**20
MOST_RANKS = 2**16

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per unit: median, 10 % and 90 % points of ``steps`` reports, after ``warm_up`` were dropped."""

    median_s: float
    low_s: float
    high_s: float
    steps: int
    warm_up: int


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports by start and iteration, the slowest rank of each."""

    starts: Ints
    iterations: Ints
    paces: Floats


class IterationSeries:
    """Reported paces of one kind, in order of arrival."""

    def __init__(self) -> None:
        self.starts, self.iterations, self.paces = array("q"), array("q"), array("d")
        self.open: dict[int, float] = {}
        self.last_of: dict[str, int] = {}
        self.start = self.closed = self.newest = 0
        self.stride = 1

    def __bool__(self) -> bool:
        return bool(self.open or self.paces)

    def add(self, iteration: int | None, pace_s: float, rank: str | None) -> bool:
        """Add a report; one without a number is the next iteration. Return whether it is the first of a new start."""
        number = self.newest + 1 if iteration is None else iteration
        self.newest = max(self.newest, number)
        again = self._goes_back(number, rank)
        if again:
            self.restart()
        if rank is not None:
            if len(self.last_of) >= MOST_RANKS:
                self.last_of.clear()
            self.last_of[rank] = number
        self.open[number] = max(pace_s, self.open.get(number, pace_s))
        if len(self.open) > OPEN:
            self._close(min(self.open))
        return again

    def restart(self) -> None:
        """Begin a new start."""
        self.start += bool(self.open)
        for number in sorted(self.open):
            self._close(number, self.start - 1)
        self.last_of.clear()

    def timing(self) -> Timing | None:
        """Return median and spread after warm-up; None if nothing is left."""
        found = self._reports()
        if not len(found.paces):
            return None
        counts = _newest(found) & ~_early(found)
        if counts.any():
            counts &= ~_unsettled(found, float(np.median(found.paces[counts])))
        if not counts.any():
            return None
        low, median, high = np.quantile(found.paces[counts], (0.1, 0.5, 0.9)).tolist()
        return Timing(median, low, high, int(counts.sum()), int((_newest(found) & ~counts).sum()))

    def _goes_back(self, number: int, rank: str | None) -> bool:
        if rank is not None:
            return number < self.last_of.get(rank, number)
        return number not in self.open and number < max(self.open, default=number)

    def _close(self, number: int, start: int | None = None) -> None:
        """Store an open iteration, or only every ``stride``-th of them if there are too many."""
        pace_s = self.open.pop(number)
        self.closed += 1
        if self.closed % self.stride:
            return
        self.starts.append(self.start if start is None else start)
        self.iterations.append(number)
        self.paces.append(pace_s)
        if len(self.paces) >= MOST:
            self.stride *= 2
            self.starts, self.iterations, self.paces = self.starts[::2], self.iterations[::2], self.paces[::2]

    def _reports(self) -> Reports:
        still = np.array(sorted(self.open), dtype=np.int64)
        last = np.array([self.open[number] for number in still.tolist()], dtype=np.float64)
        starts = np.concatenate((np.array(self.starts, dtype=np.int64), np.full_like(still, self.start)))
        iterations = np.concatenate((np.array(self.iterations, dtype=np.int64), still))
        paces = np.concatenate((np.array(self.paces, dtype=np.float64), last))
        order = np.lexsort((iterations, starts))
        starts, iterations, paces = starts[order], iterations[order], paces[order]
        new = _changes(starts) | _changes(iterations)
        first = np.flatnonzero(new)
        slowest = np.maximum.reduceat(paces, first) if len(paces) else paces
        return Reports(starts[first], iterations[first], slowest)


def _changes(values: Ints) -> Flags:
    """Return where a value differs from the previous one."""
    return np.concatenate((np.ones(min(1, len(values)), dtype=np.bool_), values[1:] != values[:-1]))


def _newest(found: Reports) -> Flags:
    """Return a mask of the iterations that no later start ran again."""
    flags = np.zeros(len(found.paces), dtype=np.bool_)
    _, backwards = np.unique(found.iterations[::-1], return_index=True)
    flags[len(flags) - 1 - backwards] = True
    return flags


def _early(found: Reports) -> Flags:
    """Return a mask of reports within the first iterations of their start."""
    first = np.flatnonzero(_changes(found.starts))
    lengths = np.diff(np.append(first, len(found.starts)))
    return found.iterations - np.repeat(found.iterations[first], lengths) < WARM_UP


def _unsettled(found: Reports, median_s: float) -> Flags:
    """Return a mask of reports before their start first comes near the median."""
    flags = np.zeros(len(found.paces), dtype=np.bool_)
    far = (np.abs(found.paces / median_s - 1) > NEAR) | _early(found)
    bounds = [*np.flatnonzero(_changes(found.starts)).tolist(), len(flags)]
    for begin, end in pairwise(bounds):
        leading = int(np.argmin(far[begin:end])) if not far[begin:end].all() else end - begin
        flags[begin : begin + min(leading, (end - begin) // 2)] = True
    return flags
