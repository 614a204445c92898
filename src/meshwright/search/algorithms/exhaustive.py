"""Exhaustive search: evaluate every legal plan, rank the ones that fit, and keep the reasons.

``evaluate`` is handed in: this floor knows plans, not costs. Plans whose floor of memory is already above the
capacity are not evaluated. Ranking: step time (tokens/s at the given batch), plans within ``TIE`` of each other by
memory. The best K differ from each other in something that matters: the layout or recomputation, not only in how
states are sharded, the micro-batch or the schedule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.search.space.plan_space import Space

TIE = 0.001
CHUNK = 2**16
MATTERS = ("pp", "tp", "cp", "ep", "etp", "recompute")

Floats = NDArray[np.float64]


class Scores(Protocol):
    """The step time and memory of every evaluated plan."""

    @property
    def step_s(self) -> Floats:
        """Seconds per step."""
        ...

    @property
    def total_bytes(self) -> Floats:
        """Peak memory of the worst device."""
        ...

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Return the mask of plans whose peak memory is within the usable memory."""
        ...


Evaluate = Callable[[PlanArrays], Scores]
Floor = Callable[[PlanArrays], NDArray[np.bool_]]


@dataclass(frozen=True)
class RankedPlans:
    """All evaluated plans with their scores; ``ranking`` lists rows that fit, best first.

    Of plans that a bound spared (``expensive_best_first.py``): ``overfull`` can not fit, ``slower`` are not among
    the best, ``unplayed`` may be and would have taken too long, or an interrupt came before (``interrupted``);
    ``floors`` is the least bound of the last two of each schedule, in seconds by code, and ``least_bytes`` that of
    any plan's peak. ``overfull_values``: by choice and value, the least bytes of plans that can not fit.
    """

    plans: PlanArrays
    step_s: Floats
    total_bytes: Floats
    fits: NDArray[np.bool_]
    ranking: NDArray[np.int64]
    too_large: int
    overfull: int = 0
    slower: int = 0
    unplayed: int = 0
    interrupted: bool = False
    floors: Mapping[int, float] = field(default_factory=dict)
    least_bytes: float = np.inf
    overfull_values: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def joined(self, other: "RankedPlans") -> "RankedPlans":
        """With what was found of other plans; both have the same tables of names."""
        columns = {
            name: np.concatenate([column, other.plans.columns[name]])
            for name, column in self.plans.columns.items()
        }
        step_s, total, fits = (
            np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("step_s", "total_bytes", "fits")
        )
        names = self.overfull_values.keys() | other.overfull_values.keys()
        return RankedPlans(
            self.plans.with_columns(columns),
            step_s,
            total,
            fits,
            ranked(step_s, total, fits),
            too_large=self.too_large + other.too_large,
            overfull=self.overfull + other.overfull,
            slower=self.slower + other.slower,
            unplayed=self.unplayed + other.unplayed,
            interrupted=self.interrupted or other.interrupted,
            floors=_least(self.floors, other.floors),
            least_bytes=min(self.least_bytes, other.least_bytes),
            overfull_values={
                name: _least(self.overfull_values.get(name, {}), other.overfull_values.get(name, {}))
                for name in names
            },
        )

    @property
    def gap(self) -> float:
        """By which part of its time the best plan may be slower than one that was left; 0 where none may be quicker."""
        if not self.unplayed or not len(self.ranking):
            return 0.0
        best = float(self.step_s[self.ranking].min())
        return max(0.0, 1 - min(self.floors.values(), default=0.0) / best)

    def top(self, count: int) -> list[int]:
        """Rows of the best plans that differ in something that matters."""
        first = distinct([getattr(self.plans, name)[self.ranking] for name in MATTERS]).first
        return [int(self.ranking[i]) for i in np.sort(first)[:count]]

    def within(self, ratio: float) -> int:
        """Plans that fit and whose time is at most ``ratio`` times the best."""
        times = self.step_s[self.ranking]
        return int((times <= ratio * times.min()).sum()) if len(times) else 0


def _least(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Return the smaller value of each key."""
    keys = one.keys() | other.keys()
    return {key: min(one.get(key, np.inf), other.get(key, np.inf)) for key in keys}


def least_of_schedules(plans: PlanArrays, bounds: Floats) -> dict[int, float]:
    """Return the least bound of each schedule's plans, by schedule code."""
    return {int(code): float(bounds[plans.schedule == code].min()) for code in np.unique(plans.schedule)}


def search_all(space: Space, evaluate: Evaluate, may_fit: Floor) -> RankedPlans:
    """Score every plan of a space that may fit. Empty spaces give empty results."""
    possible = may_fit(space.plans)
    found = search_plans(space.plans.take(possible), evaluate)
    return replace(found, too_large=found.too_large + int((~possible).sum()))


def search_plans(plans: PlanArrays, evaluate: Evaluate) -> RankedPlans:
    """Score plans."""
    parts = [
        evaluate(plans.take(np.arange(at, min(at + CHUNK, len(plans))))) for at in range(0, len(plans), CHUNK)
    ]
    step_s, total = (_joined([getattr(part, name) for part in parts]) for name in ("step_s", "total_bytes"))
    fits = _joined([part.fits for part in parts]).astype(np.bool_)
    ranking = ranked(step_s, total, fits)
    return RankedPlans(plans, step_s, total, fits, ranking, int((~fits).sum()))


def ranked(step_s: Floats, total_bytes: Floats, fits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows that fit, best first."""
    rows = np.flatnonzero(fits)
    return rows[rank(step_s[rows], total_bytes[rows])]


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0)


def rank(step_s: Floats, total_bytes: Floats) -> NDArray[np.int64]:
    """Order by step time; runs of plans that are within ``TIE`` of the run's first go by memory."""
    order = np.argsort(step_s, kind="stable")
    ascending = step_s[order]
    result: list[NDArray[np.int64]] = []
    at = 0
    while at < len(order):
        end = int(np.searchsorted(ascending, ascending[at] * (1 + TIE), side="right"))
        run = order[at:end]
        result.append(run[np.argsort(total_bytes[run], kind="stable")])
        at = end
    return np.concatenate(result) if result else np.zeros(0, dtype=np.int64)
