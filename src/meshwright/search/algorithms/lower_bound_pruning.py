"""Branch and bound: evaluate plans in the order of their lower bounds until no other plan can matter.

Bounds of time and memory are handed in; they are cheap and for all plans at once. What matters is asked as questions:

* the best plans that differ in something that matters (``MATTERS``), each the best of its kind;
* all plans that are within ``ratio`` of the best;
* for each value of each choice, the best plan that has it: what explains the best one. Not for what is chosen later
  (``search/space/deferred_choice.py``), of which a plan is compared with itself.

A plan is open while its bound is not above what one of these would take it for. Answers only get better, so that a plan
that is closed stays closed. At first the plan with the least bound of each value of each choice is evaluated, so that
hardly a question is without an answer; that closes most of the space, whose plans are never written out
(``candidates.py``). What is left gets every value of what is chosen later. Then open plans are evaluated in groups that
are priced together, those with the least bounds first. What is found is what evaluating everything would find, as far
as these questions go.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices import CHOICES
from meshwright.search.algorithms.candidates import Chosen, OpenCandidates, SpaceBounds
from meshwright.search.algorithms.exhaustive import (
    MATTERS,
    TIE,
    Floats,
    RankedPlans,
    Scores,
    least_of_schedules,
    ranked,
)
from meshwright.search.algorithms.shared_evaluation import ScoredRows, Steps
from meshwright.search.choice_reasons import FIELDS
from meshwright.search.space.plan_space import ExpandedPlans, Space

PRICED_TOGETHER = (*CHOICES, "virtual_stages", "pp")
LIKELY = (1, 4, 16)
"""For each value how many likely best plans are evaluated, as long as none fits."""
GROUPS_AT_ONCE = 32
AHEAD = 0.5
"""Groups are priced ahead of their turn, which is cheaper in one array: as many as this part of those so far."""
MOST_AT_ONCE = 2**16
ROOM = (1 + TIE) ** 2
"""A leaner plan that is hardly slower goes first: as much is looked at beyond the best."""
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class BestSoFar:
    """The fastest plan that fits of those evaluated: ``row`` of ``plans``; infinite where none fits yet."""

    step_s: float
    plans: PlanArrays
    row: int


Heard = Callable[[BestSoFar, int], None]


@dataclass(frozen=True)
class SearchRequest:
    """``top`` plans that differ in what matters, and all within ``ratio`` times the best."""

    top: int
    ratio: float


def search_bounded(
    space: Space,
    bounds: SpaceBounds,
    usable_bytes: float,
    request: SearchRequest,
    heard: Heard = lambda best, left: None,
) -> Steps[RankedPlans]:
    """Score the plans of a space that matter: yield them, to be sent their scores. Empty spaces give empty results.

    ``bounds`` hold whatever is chosen later.
    ``heard`` is called with the best plan so far and the number of open plans. An interrupt leaves what was found till
    then.
    """
    openings = OpenCandidates(space, bounds, usable_bytes)
    state = yield from _open_plans(openings, request)
    interrupted = False
    while not interrupted and len(rows := state.next_rows()):
        heard(state.best, len(rows) + len(state.left))
        try:
            if len(new := state.rows_to_price(rows)):
                state.price(new, (yield state.plans.take(new)))
            state.answer(rows, state.priced_scores(rows))
        except KeyboardInterrupt:
            interrupted = True
            state.left = np.concatenate([rows, state.left])
    taken = state.taken
    fits, step_s, total = state.fits[taken], state.step_s[taken], state.total_bytes[taken]
    return RankedPlans(
        state.plans.take(taken),
        step_s,
        total,
        fits,
        ranked(step_s, total, fits),
        too_large=openings.overfull + int((~fits).sum()),
        overfull=openings.overfull,
        slower=openings.fitting - len(taken) - len(state.left),
        unplayed=len(state.left),
        interrupted=interrupted,
        floors=least_of_schedules(state.plans.take(state.left), state.floors[state.left]),
        least_bytes=openings.least_bytes,
        overfull_values=openings.overfull_values,
    )


def _open_plans(openings: OpenCandidates, request: SearchRequest) -> Steps["_SearchState"]:
    """Evaluate the likely best plans of each value, then return the questions to the plans still open."""
    space, seen = openings.space, np.zeros(openings.floors.shape, dtype=np.bool_)
    parts: list[tuple[Chosen, Rows, Scores]] = []
    worth = _Worth(request)
    for count in LIKELY:
        likely = openings.likely_best(count, seen)
        every = space.every(likely.variants, likely.rows)
        quick = np.flatnonzero(~every.slower)
        plans, of = every.plans.take(quick), every.of[quick]
        scores = yield plans
        good = np.flatnonzero(scores.fits)
        openings.answer(likely.rows[of[good]], plans.take(good), scores.step_s[good])
        worth.answer(plans.take(good), scores.step_s[good])
        seen[likely.variants, likely.rows] = True
        places = np.arange(len(every.of)) - np.searchsorted(every.of, every.of)
        parts.append((likely.take(of), places[quick], scores))
    which = openings.open(worth.enough) | seen
    every = space.every(*np.nonzero(which))
    state = _SearchState(every, openings.floors[which].astype(np.float64)[every.of], request)
    first = np.searchsorted(every.of, np.cumsum(which) - 1).reshape(which.shape)
    for likely, places, scores in parts:
        state.answer(first[likely.variants, likely.rows] + places, scores)
    state.left = np.flatnonzero(~state.evaluated & ~state.waiting)
    return state


class _Worth:
    """The best step times of plans that differ in the columns ``MATTERS``."""

    def __init__(self, request: SearchRequest) -> None:
        self.request = request
        self.best: dict[tuple[int, ...], float] = {}

    def answer(self, plans: PlanArrays, seconds: Floats) -> None:
        """Update the best times with the step times of plans that fit."""
        kinds = zip(*(getattr(plans, name).tolist() for name in MATTERS), strict=True)
        for kind, time in zip(kinds, seconds.tolist(), strict=True):
            self.best[kind] = min(time, self.best.get(kind, np.inf))

    @property
    def enough(self) -> float:
        """Beyond which time a plan is not among the best, and not within the ratio of the best one."""
        ordered = sorted(self.best.values())
        if len(ordered) < self.request.top:
            return np.inf
        return max(ordered[self.request.top - 1] * ROOM, ordered[0] * self.request.ratio)


class _SearchState:
    """The questions, with the best answers so far; infinite where there is none yet."""

    def __init__(self, every: ExpandedPlans, floors: Floats, request: SearchRequest) -> None:
        plans = every.plans
        self.plans, self.floors, self.request = plans, floors, request
        self.of, self.waiting = every.of, every.slower.copy()
        self.left: Rows = np.flatnonzero(~self.waiting)
        self.step_s, self.total_bytes = np.full(len(plans), np.inf), np.zeros(len(plans))
        self.fits, self.evaluated = np.zeros((2, len(plans)), dtype=np.bool_)
        self.priced, self.rounds = np.zeros(len(plans), dtype=np.bool_), 0
        self.together = _Bests(plans, PRICED_TOGETHER)
        self.kinds = _Bests(plans, MATTERS)
        self.values = [_Bests(plans, (field,)) for field in FIELDS]

    @property
    def best_s(self) -> float:
        """The best time so far."""
        return float(self.kinds.best.min(initial=np.inf))

    @property
    def best(self) -> BestSoFar:
        """The best plan so far."""
        times = np.where(self.fits & self.evaluated, self.step_s, np.inf)
        row = int(times.argmin())
        return BestSoFar(float(times[row]), self.plans, row)

    @property
    def taken(self) -> Rows:
        """All rows that were evaluated."""
        return np.flatnonzero(self.evaluated)

    def next_rows(self) -> Rows:
        """Open plans of some groups; nothing where none is left."""
        self.left = self.left[self.floors[self.left] <= self._enough(self.left)]
        now = self._of_first_groups(GROUPS_AT_ONCE)
        rows = self.left[now][:MOST_AT_ONCE]
        self.left = np.concatenate([self.left[now][MOST_AT_ONCE:], self.left[~now]])
        self.rounds += 1
        return rows

    def _of_first_groups(self, count: int) -> NDArray[np.bool_]:
        """Return the mask of ``left`` of plans in the groups with the least bounds."""
        least = self.together.least(self.left, self.floors[self.left])
        first = np.argsort(least)[:count]
        chosen = np.zeros(len(least), dtype=np.bool_)
        chosen[first[np.isfinite(least[first])]] = True
        return chosen[self.together.of[self.left]]

    def rows_to_price(self, rows: Rows) -> Rows:
        """Return what has no price yet of ``rows``, and then of the groups that come next too."""
        new = rows[~self.priced[rows]]
        groups = int(AHEAD * self.rounds) * GROUPS_AT_ONCE
        if not len(new) or not groups:
            return new
        ahead = self.left[self._of_first_groups(groups)]
        return np.concatenate([new, ahead[~self.priced[ahead]]])[: max(len(new), MOST_AT_ONCE)]

    def price(self, rows: Rows, scores: Scores) -> None:
        """Store the scores of rows whose turn is now or later."""
        self.step_s[rows], self.total_bytes[rows] = scores.step_s, scores.total_bytes
        self.fits[rows], self.priced[rows] = scores.fits, True

    def priced_scores(self, rows: Rows) -> Scores:
        """Return the scores of priced rows."""
        return ScoredRows(self.step_s[rows], self.total_bytes[rows], self.fits[rows])

    def answer(self, rows: Rows, scores: Scores) -> None:
        """Store the evaluated scores of rows."""
        self.step_s[rows], self.total_bytes[rows] = scores.step_s, scores.total_bytes
        self.fits[rows], self.evaluated[rows] = scores.fits, True
        good, seconds = rows[scores.fits], scores.step_s[scores.fits]
        for bests in (self.kinds, *self.values):
            bests.update(good, seconds)
        lacking = np.zeros(int(self.of.max(initial=-1)) + 1, dtype=np.bool_)
        lacking[self.of[rows[~scores.fits]]] = True
        open_ = np.flatnonzero(self.waiting & lacking[self.of])
        self.left, self.waiting[open_] = np.concatenate([self.left, open_]), False

    def _enough(self, rows: Rows) -> Floats:
        """Beyond which time a plan answers none of the questions."""
        of_kinds = np.minimum(self.kinds.worth(self.request.top), self.kinds.at(rows)) * ROOM
        enough = np.maximum(of_kinds, self.best_s * self.request.ratio)
        for bests in self.values:
            enough = np.maximum(enough, bests.at(rows))
        return enough


class _Bests:
    """The best time of each kind of plan; ``of`` says which kind a plan is: equal in these columns."""

    def __init__(self, plans: PlanArrays, columns: tuple[str, ...]) -> None:
        self.of = distinct([getattr(plans, name) for name in columns]).inverse
        self.best = self.least(np.zeros(0, dtype=np.int64), np.zeros(0))

    def least(self, rows: Rows, values: Floats) -> Floats:
        """Return the least value of each kind; infinite for a kind without rows."""
        result = np.full(int(self.of.max(initial=-1)) + 1, np.inf)
        np.minimum.at(result, self.of[rows], values)
        return result

    def update(self, rows: Rows, seconds: Floats) -> None:
        """Take note of times."""
        np.minimum.at(self.best, self.of[rows], seconds)

    def at(self, rows: Rows) -> Floats:
        """Return the best time of each row's kind."""
        return self.best[self.of[rows]]

    def worth(self, top: int) -> float:
        """Return the time of the ``top``-th best kind in seconds; infinite where there are fewer."""
        return float(np.partition(self.best, top - 1)[top - 1]) if len(self.best) >= top else np.inf
