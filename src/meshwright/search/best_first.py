"""Plans whose evaluation is dear, by their lower bound: what can still win is evaluated, the rest is left.

``floor`` and ``evaluate`` are handed in. Beside plans that are evaluated already, as a search found them, others are
evaluated in the order of their bounds, until the bound is above the best K plans that differ in something that matters.
So the best K are those of all plans, and what is left out is slower than them by its bound. A plan that could only be
second in its own layout is not evaluated either. A limit on the passes of the lists that are played bounds the work;
what it leaves out is counted, and the bounds say how much better it might be. So it is with an interrupt: what has been
found till then is the answer.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plan.arrays import COLUMNS, PlanArrays
from meshwright.search.exhaustive import MATTERS, Evaluate, Floats, Found, ranked

AT_ONCE = 4
PLAYED_ROUNDS = 16
"""Rounds of P micro-batches whose lists are played for a step time, beside those for memory."""
MOST_PASSES = 1_200_000
LISTS = ("pp", "virtual_stages", "schedule", "tp", "cp", "ep", "etp", "micro_batch", "recompute")
"""Plans that are equal in these and in the number of replicas have nearly the same lists."""

Bounds = Callable[[PlanArrays, float], Floats]


def widen(found: Found, dear: PlanArrays, floor: Bounds, evaluate: Evaluate, top: int, batch: int) -> Found:
    """``found`` with the ``dear`` plans that may be among its best ``top``; both have the same tables of names."""
    best = _Best(found, dear, top)
    bounds = floor(dear, best.worth)
    limits = _Limits(dear)
    waiting = np.lexsort([limits.of, bounds])
    waiting = waiting[np.isfinite(bounds[waiting])]
    work, unplayed, taken = _Work(dear, batch), 0, list[int]()
    interrupted = False
    hopeless = list[int]()
    scores: list[tuple[Floats, Floats, NDArray[np.bool_]]] = []
    at = 0
    while at < len(waiting) and bounds[waiting[at]] < best.worth:
        near = [int(row) for row in waiting[at : at + AT_ONCE] if bounds[row] < best.threshold(int(row))]
        rows = [row for row in near if limits.may_fit(row)]
        hopeless += [row for row in near if not limits.may_fit(row)]
        at += AT_ONCE
        playable = [row for row in rows if work.allows(row)]
        unplayed += len(rows) - len(playable)
        if not playable:
            continue
        some = np.array(playable)
        try:
            result = evaluate(dear.take(some))
        except KeyboardInterrupt:
            rest = sum(bool(bounds[row] < best.threshold(int(row))) for row in waiting[at:])
            unplayed, interrupted = unplayed + len(playable) + rest, True
            break
        best.update(some, result.step_s, result.fits)
        limits.refuse(some[~result.fits])
        taken += playable
        scores.append((result.step_s, result.total_bytes, result.fits))
    left = np.setdiff1d(waiting, [*taken, *hopeless])
    widened = _joined(found, dear.take(np.array(taken, dtype=np.int64)), scores)
    overfull = len(dear) - len(taken) - len(left)
    refused = int((~widened.fits[len(found.fits) :]).sum())
    return replace(
        widened,
        too_large=found.too_large + overfull + refused,
        overfull=overfull,
        slower=len(left) - unplayed,
        unplayed=unplayed,
        interrupted=interrupted,
        floors=_least(dear, bounds, left),
    )


class _Best:
    """The best time of every layout, and what a plan must be better than to be among the best ``top``."""

    def __init__(self, found: Found, dear: PlanArrays, top: int) -> None:
        keys = np.concatenate([_matters(found.plans), _matters(dear)])
        groups = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        self.top, self.groups = top, groups[len(found.plans) :]
        self.best = np.full(int(groups.max(initial=-1)) + 1, np.inf)
        own = groups[: len(found.plans)]
        np.minimum.at(self.best, own[found.fits], found.step_s[found.fits])
        self._set_worth()

    def _set_worth(self) -> None:
        ordered = np.sort(self.best)
        self.worth = float(ordered[self.top - 1]) if len(ordered) >= self.top else np.inf

    def threshold(self, row: int) -> float:
        return min(self.worth, float(self.best[self.groups[row]]))

    def update(self, rows: NDArray[np.int64], step_s: Floats, fits: NDArray[np.bool_]) -> None:
        np.minimum.at(self.best, self.groups[rows[fits]], step_s[fits])
        self._set_worth()


class _Limits:
    """Plans that are equal but for a schedule's memory limit: where one does not fit, none with a higher limit does."""

    def __init__(self, plans: PlanArrays) -> None:
        names = [choice.name for choice in plans.schedules]
        limits = [choice.memory_limit or choice.kind.keeps_to or 0.0 for choice in plans.schedules]
        self.of = np.array(limits, dtype=np.float64)[plans.schedule]
        name = np.array([names.index(name) for name in names], dtype=np.int64)[plans.schedule]
        columns = [getattr(plans, column) for column in COLUMNS if column != "schedule"]
        self.plan = np.stack([*columns, name], 1)
        self.refused: dict[bytes, float] = {}

    def may_fit(self, row: int) -> bool:
        return bool(self.of[row] <= self.refused.get(self.plan[row].tobytes(), np.inf))

    def refuse(self, rows: NDArray[np.int64]) -> None:
        for row in rows:
            key = self.plan[row].tobytes()
            self.refused[key] = min(float(self.of[row]), self.refused.get(key, np.inf))


class _Work:
    """Counts the passes of lists that are played; equal lists once."""

    def __init__(self, plans: PlanArrays, batch: int) -> None:
        count = plans.micro_batches(batch)
        self.passes = (
            3 * plans.pp * plans.virtual_stages * (count + np.minimum(count, PLAYED_ROUNDS * plans.pp))
        )
        self.lists = np.stack([*(getattr(plans, name) for name in LISTS), count], 1)
        self.seen: set[bytes] = set()
        self.done = 0

    def allows(self, row: int) -> bool:
        key = self.lists[row].tobytes()
        if key in self.seen:
            return True
        if self.done + int(self.passes[row]) > MOST_PASSES:
            return False
        self.seen.add(key)
        self.done += int(self.passes[row])
        return True


def _matters(plans: PlanArrays) -> NDArray[np.int64]:
    return np.stack([getattr(plans, name) for name in MATTERS], 1)


def _joined(found: Found, plans: PlanArrays, scores: list[tuple[Floats, Floats, NDArray[np.bool_]]]) -> Found:
    """The plans that were found, and more."""
    if not len(plans):
        return found
    step_s, total, fits = (
        np.concatenate([own, *of_more])
        for own, of_more in zip(
            (found.step_s, found.total_bytes, found.fits), zip(*scores, strict=True), strict=True
        )
    )
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(found.plans, name), getattr(plans, name)]) for name in COLUMNS
    }
    return replace(
        found,
        plans=replace(found.plans, **columns),
        step_s=step_s,
        total_bytes=total,
        fits=fits,
        ranking=ranked(step_s, total, fits),
    )


def _least(dear: PlanArrays, bounds: Floats, left: NDArray[np.int64]) -> dict[int, float]:
    """The least bound of each schedule's plans at ``left``."""
    codes = dear.schedule[left]
    return {int(code): float(bounds[left][codes == code].min()) for code in np.unique(codes)}
