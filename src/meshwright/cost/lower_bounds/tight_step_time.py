"""A tight lower bound of every plan's step time, without action lists; a search simulates what it leaves open.

Before the first backward pass of rank r the first micro-batch has gone forward through all stages and back to the last
stage of r: t_r = Σ F + Σ B of the stages behind + messages. Till then r runs n_r forward passes at most: no more than
its schedule holds (``schedules/in_flight_bounds.py``), and no more than the memory beside states and buffers has
room for. So r idles for t_r − n_r·F of that time, and for as long as the first micro-batch takes to reach it at
least, and works for M·(F + B); whole backward passes end on the ranks before it later still, by Σ B of the stages
before. With I in the place of B in t_r where backward passes are split.

Room bounds the pace too: what stage k keeps of a micro-batch stays for life_k = Σ_{j≥k} (F_j + B_j) + messages, the
way to the end and back. A rank that never holds more than R needs Σ_k M·kept_k·life_k / R seconds; so it does with
passes in the place of bytes.

The norm, the optimizer and tied tables are behind that. Left out are exposed gathers and reductions, and idle time
between passes. Infinite where a rank has no room for what it holds at least: a micro-batch on each of its stages, what
its schedule's lists hold where these are the same for all times, or what all lists of an automatic schedule begin with
(``automatic_schedule_memory.py``). Neither seconds nor bytes are above those of ``evaluate`` (tests). A schedule
that may fill its limit, of passes that wait for I or for W, whichever keep more, most often does: bytes up to the
limit are an estimate that says what to try first.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.closed_form.step_parts import (
    PERTURBATIONS,
    norm_and_ties,
    optimizer,
    perturbation,
    update,
    with_sends,
)
from meshwright.cost.lower_bounds.automatic_schedule_memory import leading_forward_passes, min_passes_held
from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.cost.memory.rank_ledgers import activations, ledgers_without_lists, saved_activation_bytes
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.in_flight_bounds import in_flight_bounds

ROOM = 1 + 1e-9


@dataclass(frozen=True)
class TightBounds:
    """Lower bounds of every plan: seconds, infinite if it can not fit, and bytes on its worst rank.

    ``limit_bytes`` is what the worst rank holds if its schedule fills a limit; no less than ``total_bytes``.
    """

    step_s: Floats
    total_bytes: Floats
    limit_bytes: Floats


def tight_bounds(plans: PlanArrays, setting: Setting, enough: float = np.inf) -> TightBounds:
    """Lower bounds of each plan. Where the work of the mean rank alone takes ``enough``, that is the only one."""
    alike = _alike(plans)
    equal = distinct([getattr(alike, name) for name in COLUMNS])
    different, order = alike.take(equal.first), np.argsort(equal.inverse, kind="stable")
    counts = np.bincount(equal.inverse)
    starts = np.cumsum(counts) - counts
    seconds, held, full = np.empty(len(plans)), np.zeros(len(plans)), np.zeros(len(plans))
    for rows, group in pipeline_groups(different, setting):
        work = _mean_work(group)
        at = np.repeat(np.arange(len(rows)), counts[rows])
        within = np.arange(len(at)) - np.repeat(np.cumsum(counts[rows]) - counts[rows], counts[rows])
        members = order[starts[rows][at] + within]
        seconds[members] = work[at]
        near = np.flatnonzero(work < enough)
        if not len(near):
            continue
        bound, place = _Bound(group.take(near)), np.full(len(rows), -1)
        place[near] = np.arange(len(near))
        chosen = members[place[at] >= 0], place[at][place[at] >= 0]
        for code in np.unique(plans.schedule[chosen[0]]):
            mine = plans.schedule[chosen[0]] == code
            of_plans = chosen[0][mine]
            found = bound.of(chosen[1][mine], plans.schedules[code])
            seconds[of_plans], held[of_plans] = found.step_s, found.total_bytes
            full[of_plans] = found.limit_bytes
    return TightBounds(seconds, held, full)


def _alike(plans: PlanArrays) -> PlanArrays:
    """Return the plans with one schedule for all that place and pass stages alike."""
    kinds = [choice.kind for choice in plans.schedules]
    keys = [
        (kind.placement, kind.split, kind.chains, choice.vocabulary, choice.step_validation)
        for kind, choice in zip(kinds, plans.schedules, strict=True)
    ]
    return plans.with_columns({"schedule": np.array([keys.index(key) for key in keys])[plans.schedule]})


def _mean_work(group: PlanGroup) -> Floats:
    """Seconds of all passes of a step over the number of ranks that share them."""
    stages = np.bincount(group.kind_of)
    of_kind = [
        sum(
            (group.per_plan(sum(group.priced(kind)[k].values(), start=0.0)) for kind in group.pass_kinds),
            start=np.zeros(len(group.plans)),
        )
        for k in range(len(stages))
    ]
    once = sum((count * seconds for count, seconds in zip(stages, of_kind, strict=True)), start=np.zeros(1))
    return np.asarray(group.micro_batches * once / (group.ranks * group.kind.chains))


def _behind(group: PlanGroup) -> Floats:
    """Return the seconds around all passes at least: norm, tied tables, optimizer; passes over parameters between."""
    if group.forward_only:
        return update(group) + norm_and_ties(group) + PERTURBATIONS * perturbation(group).min(1)
    return optimizer(group) + norm_and_ties(group)


class _Bound:
    """Arrays that the bounds of a group's plans share: (n, P)."""

    def __init__(self, group: PlanGroup) -> None:
        self.group = group
        piped = with_sends(group, True)
        forward, back, message = piped.passes.forward, piped.passes.backward, piped.message
        at, crossed = group.stages_at, np.cumsum(group.crosses) - group.crosses
        first, last, ends = at.min(0), at.max(0), float(group.crosses.sum())
        before, behind = np.cumsum(forward, 1) - forward, back.sum(1)[:, None] - np.cumsum(back, 1)
        self.begin = before[:, first] + crossed[first] * message[:, None]
        turn = forward.sum(1)[:, None] + behind[:, last] + (2 * ends - crossed[last]) * message[:, None]
        self.turn = self.begin if group.forward_only else np.maximum(turn, self.begin)
        drain = (np.cumsum(back, 1) - back)[:, first] + crossed[first] * message[:, None]
        self.drain = 0 * drain if group.split else drain
        self.work = piped.passes.whole[:, at].sum(1) * group.micro_batches[:, None]
        self.pass_s = forward[:, at].max(1)
        out = 0.0 if group.copied else 1.0  # what waits on the hosts takes no room
        kept = out * group.kept[:, group.kind_of][:, at]
        self.kept, self.least = kept.sum(1), kept.min(1)
        both = forward + back
        life = both.sum(1)[:, None] - np.cumsum(both, 1) + both + 2 * (ends - crossed) * message[:, None]
        self.counts = group.micro_batches.astype(np.float64)
        counts = self.counts[:, None]
        self.lives, self.stay = counts * life[:, at].sum(1), counts * (kept * life[:, at]).sum(1)
        usable = usable_device_bytes(group.setting.cluster)
        self.fixed = sum(ledgers_without_lists(group).values(), start=np.zeros(1))
        self.room = usable * ROOM - self.fixed
        self.rest = _behind(group)
        self.sizes, self.of_first = saved_activation_bytes(group), kept[:, 0]
        self.largest = kept.max(1)
        if group.split and not group.copied:
            self.largest = np.maximum(self.largest, group.kept_for_weights[:, group.kind_of][:, at].max(1))
        self.before_others = leading_forward_passes(group) if group.split else self.work

    def of(self, rows: NDArray[np.int64], choice: ScheduleChoice) -> TightBounds:
        """Return the bounds of the plans at ``rows``, which have this schedule."""
        most, fixed = self._most(rows, choice), self.fixed[rows]
        held = self._held(rows, choice, most)
        full = np.maximum(held, most * self.largest[rows]) if choice.kind.default_memory_limit else held
        seconds = np.where((held <= self.room[rows]).all(1), self._seconds(rows, choice, most), np.inf)
        return TightBounds(seconds, *(np.asarray((fixed + of_ranks).max(1)) for of_ranks in (held, full)))

    def _held(self, rows: NDArray[np.int64], choice: ScheduleChoice, most: Floats) -> Floats:
        """Bytes of activations on every rank at least: (n, P)."""
        if self.group.copied:
            return 0 * most
        if choice.steady_rounds is not None and not choice.automatic:
            return activations(self.group, choice, self.sizes[rows], self.group.micro_batches[rows], None)
        if choice.form is not None:
            choice = replace(choice, vocabulary=None)  # which only makes lists hold more
            most = self._most(rows, choice)
        if not choice.kind.default_memory_limit:
            return np.maximum(self.kept[rows], most * self.least[rows])
        passes = min_passes_held(self.group, self.before_others[rows], self.counts[rows], most)
        return np.maximum(self.kept[rows], passes * self.of_first[rows])

    def _seconds(self, rows: NDArray[np.int64], choice: ScheduleChoice, most: Floats) -> Floats:
        group, room = self.group, self.room[rows]
        if choice.kind.chains > 1:
            return np.asarray(self.work[rows].max(1) / choice.kind.chains + self.rest[rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            possible = np.fmin(most, np.floor(room / self.least[rows]))
        begin, turn = self.begin[rows], self.turn[rows]
        idle = np.maximum(begin, turn - possible * self.pass_s[rows])
        ends = idle + self.work[rows] + self.drain[rows]
        with np.errstate(divide="ignore"):
            pace = np.where(room > 0, self.stay[rows] / room, np.inf)
        pace = np.maximum(pace, self.lives[rows] / most)
        ends = np.maximum(ends, begin + pace) - (begin if group.steps_overlap else 0)
        return np.asarray(ends.max(1) + self.rest[rows])

    def _most(self, rows: NDArray[np.int64], choice: ScheduleChoice) -> Floats:
        """Forward passes that every rank holds at most; what is in no way limited holds as many."""
        ranks, chunks = self.group.ranks, self.group.chunks
        if self.group.forward_only:
            return np.full((len(rows), ranks), np.inf)
        counts, where = np.unique(self.group.micro_batches[rows], return_inverse=True)
        return np.array([in_flight_bounds(choice, ranks, int(m), chunks) for m in counts], dtype=float)[where]
