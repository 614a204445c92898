"""Best-first search for plans that are expensive to evaluate: skip each plan that its lower bound rules out.

``floor`` and ``evaluate`` are handed in. Beside plans that are evaluated already, as a search found them, others are
evaluated in the order of their bounds, until the bound is above the best K plans that differ in something that matters.
So the best K are those of all plans, and what is left out is slower than them by its bound. A plan that could only be
second in its own layout is not evaluated either. While nothing is known to fit, the plans that are leanest by their
bound come first, for as much as a part of the work; plans that would not fit if their schedules held all that they may
come last. The work is bounded: the passes of all lists that are made, compared and played, which is CPU time, but the
same on any machine. What it leaves out is counted, and the bounds say how much better it might be. So it is with an
interrupt: what has been found till then is the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.search.algorithms.exhaustive import (
    MATTERS,
    Evaluate,
    Floats,
    RankedPlans,
    least_of_schedules,
    ranked,
)

AT_ONCE = 4
AHEAD = 0.25
"""Plans are evaluated ahead of their turn, which is cheaper in one array: as many as this part of those so far."""
PLAYED_ROUNDS = 16
"""Rounds of P micro-batches whose lists are simulated for a step time, besides those for memory."""
COMPARED_GAMES = 25
COMPARED_PASSES = 8_000
"""An automatic schedule is the best of so many games of so many passes at most, or three rounds."""
MOST_PASSES = 10_000_000
"""Passes that are made and played."""
LEANEST = 0.5
"""The part of these that is for finding any plan that fits."""
LISTS = (
    "pp",
    "virtual_stages",
    "schedule",
    "tp",
    "cp",
    "ep",
    "etp",
    "micro_batch",
    "recompute",
    "gather",
    "offload",
)
"""Plans that are equal in these and in the number of replicas have nearly the same lists."""


class Floors(Protocol):
    """Lower bounds of plans."""

    @property
    def step_s(self) -> Floats:
        """Seconds per step; infinite where a plan can not fit."""
        ...

    @property
    def total_bytes(self) -> Floats:
        """Peak memory of the worst device."""
        ...

    @property
    def limit_bytes(self) -> Floats:
        """No bound: the peak of a schedule that fills its limit of memory."""
        ...


Bounds = Callable[[PlanArrays, float], Floors]


def add_expensive_plans(
    found: RankedPlans,
    plans: PlanArrays,
    floor: Bounds,
    evaluate: Evaluate,
    usable_bytes: float,
    top: int,
    batch: int,
) -> RankedPlans:
    """``found`` with those of ``plans`` that may be among its best ``top``; both have the same tables of names."""
    worth = enough_step_s(found, top)
    floors = floor(plans, worth)
    near = np.flatnonzero(floors.step_s < worth)
    dear, bounds = plans.take(near), floors.step_s[near]
    play = _Play(dear, evaluate, _Best(found, dear, top), batch)
    if not found.fits.any():
        leanest = np.lexsort([bounds, floors.total_bytes[near]])
        for at in range(0, len(leanest), AT_ONCE):
            if play.fit or not play.some([int(row) for row in leanest[at : at + AT_ONCE]], LEANEST):
                break
    likely = floors.limit_bytes[near] <= usable_bytes
    order = np.lexsort([play.limits.of, bounds])
    too_much = [play.best_of(rows, bounds) for rows in (order[likely[order]], order[~likely[order]])]
    unplayed = {row for rows in too_much for row in rows if bounds[row] < play.best.threshold(row)}
    left = np.ones(len(plans), dtype=np.bool_)
    left[np.isinf(floors.step_s)] = False
    left[near[sorted(play.seen)]] = False
    step_s, total, fits = play.joined_scores
    overfull = int(np.isinf(floors.step_s).sum()) + len(play.seen) - len(play.taken)
    more = RankedPlans(
        dear.take(np.array(play.taken, dtype=np.int64)),
        step_s,
        total,
        fits,
        ranked(step_s, total, fits),
        too_large=overfull + int((~fits).sum()),
        overfull=overfull,
        slower=int(left.sum()) - len(unplayed),
        unplayed=len(unplayed),
        interrupted=play.interrupted,
        floors=least_of_schedules(plans.take(left), floors.step_s[left]),
        least_bytes=float(floors.total_bytes.min()),
    )
    return found.joined(more)


def enough_step_s(found: RankedPlans, top: int) -> float:
    """Beyond which time a plan is not among the best ``top`` that differ in something that matters."""
    return _Best(found, found.plans.take(np.zeros(0, dtype=np.int64)), top).worth


class _Play:
    """Evaluates plans within the work limit; ``seen`` holds these and the plans that can not fit."""

    def __init__(self, plans: PlanArrays, evaluate: Evaluate, best: "_Best", batch: int) -> None:
        self.plans, self.evaluate, self.best = plans, evaluate, best
        self.limits, self.work = _Limits(plans), _Work(plans, batch)
        self.taken: list[int] = []
        self.seen: set[int] = set()
        self.ahead: dict[int, tuple[float, float, bool]] = {}
        self.scores: list[tuple[Floats, Floats, NDArray[np.bool_]]] = []
        self.fit = self.interrupted = False

    @property
    def joined_scores(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Seconds, bytes, and what fits, of all plans that were taken."""
        nothing = np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.bool_)
        step_s, total, fits = (np.concatenate(part) for part in zip(nothing, *self.scores, strict=True))
        return step_s, total, fits

    def some(self, rows: Sequence[int], part: float = 1.0) -> bool:
        """Evaluate the rows that may fit; false where ``part`` of the work is too little for one of them."""
        if self.interrupted:
            return False
        may_fit = [row for row in rows if self.limits.may_fit(row)]
        self.seen.update(row for row in rows if row not in may_fit)
        playable = [row for row in may_fit if self.work.allows(row, part)]
        if playable:
            some = np.array(playable)
            try:
                self._evaluate([row for row in playable if row not in self.ahead])
            except KeyboardInterrupt:
                self.interrupted = True
                return False
            step_s, total, fits = (np.array(of) for of in zip(*map(self.ahead.pop, playable), strict=True))
            self.best.update(some, step_s, fits)
            self.limits.refuse(some[~fits])
            self.fit = self.fit or bool(fits.any())
            self.taken += playable
            self.seen.update(playable)
            self.scores.append((step_s, total, fits))
        return len(playable) == len(may_fit)

    def _evaluate(self, rows: Sequence[int]) -> None:
        """Evaluate rows, whose turn is now or later."""
        if rows:
            scores = self.evaluate(self.plans.take(np.array(rows)))
            columns = (scores.step_s.tolist(), scores.total_bytes.tolist(), scores.fits.tolist())
            self.ahead.update(zip(rows, zip(*columns, strict=True), strict=True))

    def _evaluate_ahead(self, order: NDArray[np.int64], bounds: Floats) -> None:
        """Evaluate the first rows of an order whose turn is likely to come."""
        most = max(AT_ONCE, int(AHEAD * len(self.taken)))
        worth = [row for row in order[: 2 * most].tolist() if self._is_open(row, bounds)]
        rows = [row for row in worth if row not in self.ahead and self.limits.may_fit(row)]
        try:
            self._evaluate(self.work.affordable(rows[:most]))
        except KeyboardInterrupt:
            self.interrupted = True

    def _is_open(self, row: int, bounds: Floats) -> bool:
        return row not in self.seen and bool(bounds[row] < self.best.threshold(row))

    def best_of(self, order: NDArray[np.int64], bounds: Floats) -> set[int]:
        """Evaluate what may be among the best, in an order of ascending bounds; returns what was too much work."""
        unplayed = set[int]()
        for at in range(0, len(order), AT_ONCE):
            if bounds[order[at]] >= self.best.worth:
                break
            rows = [row for row in order[at : at + AT_ONCE].tolist() if self._is_open(row, bounds)]
            if self.work.affordable([row for row in rows if row not in self.ahead]):
                self._evaluate_ahead(order[at:], bounds)
            self.some(rows)
            unplayed.update(row for row in rows if row not in self.seen)
        return unplayed


class _Best:
    """The best time of every layout, and what a plan must be better than to be among the best ``top``."""

    def __init__(self, found: RankedPlans, dear: PlanArrays, top: int) -> None:
        both = (np.concatenate([getattr(found.plans, name), getattr(dear, name)]) for name in MATTERS)
        groups = distinct(list(both)).inverse
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
        unlimited = [replace(choice, memory_limit=None) for choice in plans.schedules]
        limits = [
            choice.memory_limit or choice.kind.default_memory_limit or 0.0 for choice in plans.schedules
        ]
        self.of = np.array(limits, dtype=np.float64)[plans.schedule]
        name = np.array([unlimited.index(one) for one in unlimited], dtype=np.int64)[plans.schedule]
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
    """Counts the passes of lists that are made, compared and played; equal lists once."""

    def __init__(self, plans: PlanArrays, batch: int) -> None:
        count, stages = plans.micro_batches(batch), plans.pp * plans.virtual_stages
        made, played = 3 * stages * count, 3 * stages * np.minimum(count, PLAYED_ROUNDS * plans.pp)
        compared = np.minimum(made, np.maximum(COMPARED_PASSES, 9 * stages * plans.pp))
        automatic = np.array([choice.automatic for choice in plans.schedules], dtype=np.bool_)[plans.schedule]
        self.passes = made + played + np.where(automatic, COMPARED_GAMES * compared, 0)
        alike = [replace(choice, step_validation=None) for choice in plans.schedules]  # which changes no list
        same = np.array([alike.index(choice) for choice in alike], dtype=np.int64)
        listed = plans.with_columns({"schedule": same[plans.schedule]})
        self.lists = np.stack([*(getattr(listed, name) for name in LISTS), count], 1)
        self.seen: set[bytes] = set()
        self.done = 0

    def allows(self, row: int, part: float) -> bool:
        key = self.lists[row].tobytes()
        if key in self.seen:
            return True
        if self.done + int(self.passes[row]) > part * MOST_PASSES:
            return False
        self.seen.add(key)
        self.done += int(self.passes[row])
        return True

    def affordable(self, rows: Sequence[int]) -> list[int]:
        """Return the first rows, for which the work that is left suffices."""
        new: dict[bytes, int] = {}
        for at, row in enumerate(rows):
            key = self.lists[row].tobytes()
            if key not in self.seen:
                new[key] = int(self.passes[row])
            if self.done + sum(new.values()) > MOST_PASSES:
                return list(rows[:at])
        return list(rows)
