"""Find ranks that compute far slower than before and than their peers. Pure.

A rank's busy seconds are those of a step without its waits for others, so they tell the rank that others wait for. A
busy host makes single steps long, never short: what counts is the shortest of the last steps.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.faults.step_series import LAST, LAST_S, Seconds, StepSeries, level_change

SLOW = 4.0
"""Times the busy seconds of before, and of its peers, that make a rank slow. Throttled accelerators and shared hosts
cost up to about 2, a host with five times as many processes as cores 3.2 for some steps (``benchmarks/recover.md``)."""
LONGER = 1.5
"""Times those of before where a rank has peers. Ranks that share a host's cores compute faster while they wait for the
slow one, and so does the slow one itself."""
SLOW_FROM_THE_START = 6.0
"""Times those of its peers where a rank has no healthy past: routing may give ranks unequal work for good."""
LEAST_S = 1e-3
"""Busy seconds below which a host's scheduler makes more difference than any fault."""


class Level(NamedTuple):
    """Since which step (an index) a rank computes as long as now, how long that is at least, and how long before.

    ``before_s`` is None without a healthy past. ``lasts``: for long enough to be judged.
    """

    begins: int
    now_s: float
    before_s: float | None
    lasts: bool

    @property
    def growth(self) -> float:
        """The factor by which steps are longer than before."""
        return 1.0 if self.before_s is None else self.now_s / self.before_s


def slow_ranks(
    series: StepSeries, peers: Mapping[int, Sequence[int]], known: Collection[int] = ()
) -> list[Fault]:
    """Return a fault for each rank that has become slow and is not ``known``.

    ``peers`` are the ranks with equal work by rank, itself included. A rank without peers is compared with the growth
    of all others.
    """
    levels = {rank: level_of(series.busy(rank)) for rank in sorted(series.of_rank)}
    return [
        _fault(series, rank, level, beside_s)
        for rank, level in levels.items()
        if rank not in known and level.lasts
        for beside_s in (_beside(levels, peers[rank], rank),)
        if _is_slow(rank, level, beside_s, levels)
    ]


def level_of(busy: Seconds) -> Level:
    """Return the present level of a rank's busy seconds: the shortest of its last steps.

    The first step of a process allocates and compiles and is no measure for later ones, unless it is shorter.
    """
    at = level_change(busy[1:], LONGER) if len(busy) > 2 else None
    if at is not None:
        begins, before_s = at + 1, _usual_least(busy[1 : at + 1])
    elif len(busy) > 1 and busy[0] * SLOW < np.median(busy[1:]):
        begins, before_s = 1, float(busy[0])
    else:
        begins, before_s = 0, None
    last = busy[-LAST:]
    lasts = len(busy) - begins >= LAST and bool(last.sum() >= LAST_S)
    return Level(begins, float(last.min()), before_s, lasts)


def _usual_least(busy: Seconds) -> float:
    """Return the median of the shortest of each ``LAST`` steps in a row, which the present level is comparable to."""
    return float(np.median(sliding_window_view(busy, min(LAST, len(busy))).min(axis=1)))


def _beside(levels: Mapping[int, Level], peers: Sequence[int], rank: int) -> float | None:
    """Return the median level of a rank's peers; None without any."""
    found = [levels[peer].now_s for peer in peers if peer != rank]
    return float(np.median(found)) if found else None


def _is_slow(rank: int, level: Level, beside_s: float | None, levels: Mapping[int, Level]) -> bool:
    if level.now_s < LEAST_S:
        return False
    if level.before_s is None:
        return beside_s is not None and level.now_s > SLOW_FROM_THE_START * beside_s
    if beside_s is not None:
        return level.growth > LONGER and level.now_s > SLOW * beside_s
    others = [of.growth for other, of in levels.items() if other != rank]
    return level.growth > SLOW * max(1.0, float(np.median(others)) if others else 1.0)


def _fault(series: StepSeries, rank: int, level: Level, beside_s: float | None) -> Fault:
    step, figures = series.steps[level.begins], []
    if beside_s is not None:
        figures.append(f"{level.now_s / beside_s:.1f} times as long as its peers ({beside_s * 1e3:.3g} ms)")
    if level.before_s is not None:
        figures.append(f"{level.growth:.1f} times as long as before ({level.before_s * 1e3:.3g} ms)")
    text = f"computes {level.now_s * 1e3:.3g} ms a step since step {step}, {' and '.join(figures)}"
    return Fault(kind="slow", rank=rank, step=step, evidence=text)
