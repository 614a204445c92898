"""Evaluate what may still matter: plans in the order of their lower bounds, until the rest is slower by its bound.

Bounds of time and memory are handed in; they are cheap and for all plans at once. What matters is asked as questions:

* the best plans that differ in something that matters (``MATTERS``), each the best of its kind;
* all plans that are within ``ratio`` of the best;
* for each value of each choice, the best plan that has it: what explains the best one.

A plan is open while its bound is not above what one of these would take it for. Answers only get better, so that a plan
that is closed stays closed. At first the plan with the least bound of each value of each choice is evaluated, so that
hardly a question is without an answer; then open plans in groups that are priced together, those with the least bounds
first. What is found is what evaluating everything would find, as far as these questions go.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.plan.arrays import PlanArrays
from meshwright.plan.distinct import distinct
from meshwright.search.exhaustive import MATTERS, TIE, Evaluate, Floats, Found, Scores, ranked
from meshwright.search.reasons import FIELDS
from meshwright.search.space import Space

PRICED_TOGETHER = ("recompute", "schedule", "virtual_stages", "pp", "sharding", "sequence_parallel")
SEEDINGS = 2
"""Times that the likely best plans of all values are evaluated: the first one may not fit."""
GROUPS_AT_ONCE = 32
MOST_AT_ONCE = 2**16
ROOM = (1 + TIE) ** 2
"""A leaner plan that is hardly slower goes first: as much is looked at beyond the best."""
Rows = NDArray[np.int64]


class Bounds(Protocol):
    """What every plan takes at least."""

    @property
    def step_s(self) -> Floats:
        """Seconds of a step."""
        ...

    @property
    def total_bytes(self) -> Floats:
        """Bytes on the worst device."""
        ...


@dataclass(frozen=True)
class Wanted:
    """``top`` plans that differ in what matters, and all within ``ratio`` times the best."""

    top: int
    ratio: float


def search_bounded(
    space: Space,
    bounds: Callable[[PlanArrays], Bounds],
    evaluate: Evaluate,
    usable_bytes: float,
    wanted: Wanted,
) -> Found:
    """Score the plans of a space that matter. Empty spaces give empty results."""
    plans = space.plans
    least = bounds(plans)
    fitting = least.total_bytes <= usable_bytes
    small = np.flatnonzero(fitting)
    asked = _Asked(plans.take(small), least.step_s[small], wanted)
    for _ in range(SEEDINGS):
        asked.answer(rows := asked.likely_best(), evaluate(asked.plans.take(rows)))
    while len(rows := asked.next_rows()):
        asked.answer(rows, evaluate(asked.plans.take(rows)))
    taken = asked.taken
    fits, step_s, total = asked.fits[taken], asked.step_s[taken], asked.total_bytes[taken]
    overfull = np.flatnonzero(~fitting)
    return Found(
        asked.plans.take(taken),
        step_s,
        total,
        fits,
        ranked(step_s, total, fits),
        too_large=len(overfull) + int((~fits).sum()),
        overfull=len(overfull),
        slower=len(small) - len(taken),
        least_bytes=float(least.total_bytes.min(initial=np.inf)),
        overfull_values=_least_of_values(plans.take(overfull), least.total_bytes[overfull]),
    )


def _least_of_values(plans: PlanArrays, least: Floats) -> dict[str, dict[int, float]]:
    """The least bytes of the plans with each value of each choice."""
    result = {}
    for field in FIELDS:
        column = getattr(plans, field)
        rows = distinct([column])
        bytes_of = np.full(len(rows.first), np.inf)
        np.minimum.at(bytes_of, rows.inverse, least)
        result[field] = dict(zip(column[rows.first].tolist(), bytes_of.tolist(), strict=True))
    return result


class _Asked:
    """The questions, with the best answers so far; infinite where there is none yet."""

    def __init__(self, plans: PlanArrays, floors: Floats, wanted: Wanted) -> None:
        self.plans, self.floors, self.wanted = plans, floors, wanted
        self.left: Rows = np.arange(len(plans))
        self.step_s, self.total_bytes = np.full(len(plans), np.inf), np.zeros(len(plans))
        self.fits, self.evaluated = np.zeros((2, len(plans)), dtype=np.bool_)
        self.together = _Bests(plans, PRICED_TOGETHER)
        self.kinds = _Bests(plans, MATTERS)
        self.values = [_Bests(plans, (field,)) for field in FIELDS]

    @property
    def taken(self) -> Rows:
        """All rows that were evaluated."""
        return np.flatnonzero(self.evaluated)

    def likely_best(self) -> Rows:
        """For each value of each choice that nothing fits yet, the plan with the least bound that was not evaluated."""
        ordered = self.left[np.argsort(self.floors[self.left], kind="stable")]
        found = [bests.first_unanswered(ordered) for bests in (self.kinds, *self.values)]
        rows = np.unique(np.concatenate(found))
        self.left = np.setdiff1d(self.left, rows, assume_unique=True)
        return rows

    def next_rows(self) -> Rows:
        """Open plans of some groups; nothing where none is left."""
        self.left = self.left[self.floors[self.left] <= self._enough(self.left)]
        least = self.together.least(self.left, self.floors[self.left])
        first = np.argsort(least)[:GROUPS_AT_ONCE]
        chosen = np.zeros(len(least), dtype=np.bool_)
        chosen[first[np.isfinite(least[first])]] = True
        now = chosen[self.together.of[self.left]]
        rows = self.left[now][:MOST_AT_ONCE]
        self.left = np.concatenate([self.left[now][MOST_AT_ONCE:], self.left[~now]])
        return rows

    def answer(self, rows: Rows, scores: Scores) -> None:
        """What the evaluation of rows says."""
        self.step_s[rows], self.total_bytes[rows] = scores.step_s, scores.total_bytes
        self.fits[rows], self.evaluated[rows] = scores.fits, True
        good, seconds = rows[scores.fits], scores.step_s[scores.fits]
        for bests in (self.kinds, *self.values):
            bests.update(good, seconds)

    def _enough(self, rows: Rows) -> Floats:
        """Beyond which time a plan answers none of the questions."""
        best = float(self.kinds.best.min(initial=np.inf))
        of_kinds = np.minimum(self.kinds.worth(self.wanted.top), self.kinds.at(rows)) * ROOM
        enough = np.maximum(of_kinds, best * self.wanted.ratio)
        for bests in self.values:
            enough = np.maximum(enough, bests.at(rows))
        return enough


class _Bests:
    """The best time of each kind of plan; ``of`` says which kind a plan is: equal in these columns."""

    def __init__(self, plans: PlanArrays, columns: tuple[str, ...]) -> None:
        self.of = distinct([getattr(plans, name) for name in columns]).inverse
        self.best = self.least(np.zeros(0, dtype=np.int64), np.zeros(0))

    def least(self, rows: Rows, values: Floats) -> Floats:
        """The least value of each kind; infinite where there is none."""
        result = np.full(int(self.of.max(initial=-1)) + 1, np.inf)
        np.minimum.at(result, self.of[rows], values)
        return result

    def update(self, rows: Rows, seconds: Floats) -> None:
        """Take note of times."""
        np.minimum.at(self.best, self.of[rows], seconds)

    def first_unanswered(self, ordered: Rows) -> Rows:
        """Of rows in order, the first one of each kind that has no time yet."""
        unanswered = ordered[np.isinf(self.at(ordered))]
        return unanswered[distinct([self.of[unanswered]]).first]

    def at(self, rows: Rows) -> Floats:
        """The best of each row's kind."""
        return self.best[self.of[rows]]

    def worth(self, top: int) -> float:
        """The time of the ``top``-th best kind."""
        return float(np.partition(self.best, top - 1)[top - 1]) if len(self.best) >= top else np.inf
