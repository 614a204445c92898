"""Find the plan that wins when a cluster rate changes.

The others are what a search finds to fit, the quickest ``MOST`` of them, and neighbours with closed forms that fit and
that no search proposes. A plan is the best where none is quicker by more than ``TIE``, as a search ranks them. Rates
change neither what is legal nor what fits, so that nothing is searched again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import has_form
from meshwright.explanation.cluster_resources import Resource
from meshwright.explanation.plan_difference import ExplainedPlan, PlanDifference
from meshwright.explanation.sensitivity import seconds_under
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import from_shorts, short_plan
from meshwright.plans.files.plan_file import Plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import TIE, Floats, RankedPlans

MOST = 4096
LEADERS = 64


@dataclass(frozen=True)
class RivalPlans:
    """Plans that fit, in arrays; ``header`` holds what the arrays do not."""

    fields: tuple[PlanArrays, ...]
    header: ShortPlan

    def __len__(self) -> int:
        return sum(map(len, self.fields))

    def seconds(self, setting: Setting) -> Floats:
        """Step times of all of them."""
        return np.concatenate([np.zeros(0), *(step_seconds(plans, setting) for plans in self.fields)])

    def take(self, chosen: NDArray[np.bool_]) -> "RivalPlans":
        """Those for which a mask holds."""
        if not self.fields:
            return self
        cuts = np.cumsum([len(plans) for plans in self.fields])[:-1]
        masks = np.split(chosen, cuts)
        kept = (plans.take(mask) for plans, mask in zip(self.fields, masks, strict=True))
        return replace(self, fields=tuple(plans for plans in kept if len(plans)))

    def plan(self, row: int) -> ShortPlan:
        """One of them in short."""
        plans, at = next(
            (plans, row - before)
            for plans, before in zip(self.fields, self._before, strict=True)
            if row < before + len(plans)
        )
        return short_plan(plans, at, self.header)

    @property
    def _before(self) -> list[int]:
        return [sum(len(plans) for plans in self.fields[:index]) for index in range(len(self.fields))]


@dataclass(frozen=True)
class StepTimesUnderRate:
    """Step times under one setting: the subject's and the quickest rival's, infinite where there is none."""

    own_s: float
    best_s: float
    best: Plan | None

    @property
    def holds(self) -> bool:
        """Return true if the subject is the best; false if it is illegal or does not fit."""
        return self.own_s < np.inf and is_best(self.own_s, self.best_s)


def is_best(own_s: float, best_s: float) -> bool:
    """Return true if no other plan is quicker by more than a tie."""
    return best_s >= (1 - TIE) * own_s


@dataclass(frozen=True, eq=False)
class BestPlanTest:
    """A subject that fits and its rivals, with their step times ``now_s`` as things are."""

    subject: ExplainedPlan
    rivals: RivalPlans
    now_s: Floats

    @classmethod
    def of(
        cls, subject: ExplainedPlan, found: RankedPlans, besides: Sequence[PlanDifference]
    ) -> "BestPlanTest":
        """Return the subject against the plans found and those of ``besides`` with closed forms that fit."""
        rows = found.ranking[:MOST]
        others = [one for one in besides if one.forecast.fits]
        alike = [one.plan for one in others if isinstance(one.plan, ShortPlan) and _formed(one.plan, subject)]
        fields = (found.plans.take(rows), *([from_shorts(alike)] if alike else []))
        rivals = RivalPlans(tuple(part for part in fields if len(part)), subject.header)
        return cls(subject, rivals, rivals.seconds(subject.setting))

    @property
    def holds(self) -> bool:
        """Return true if the subject is the best at the current rates."""
        return is_best(self.subject.forecast.step_s, float(self.now_s.min(initial=np.inf)))


class BestPlanUnderRate:
    """A contest under changes of one rate; what it has found bounds what it still has to ask.

    With k times as much of a rate a step is not longer, and not shorter than the k-th part. So a rival whose time is
    known at one factor has a lower bound at every other one, and only those whose bound is below the subject's time are
    priced: the likeliest first, no more of them than it takes to beat it.
    """

    def __init__(self, contest: BestPlanTest, resource: Resource[Setting]) -> None:
        self.contest, self.resource = contest, resource
        self.known: dict[float, Floats] = {1.0: contest.now_s}

    def holds(self, factor: float) -> bool:
        """Return true if the subject is the best with ``factor`` times the rate."""
        return self.round(factor, enough=True).holds

    def round(self, factor: float, *, enough: bool = False) -> StepTimesUnderRate:
        """Step times with ``factor`` times the rate; with ``enough`` of a rival that wins, not of the very best."""
        setting, contest = self.resource.scaled(factor), self.contest
        own_s = seconds_under(contest.subject, setting)
        bound = self._bound(factor)
        order = np.argsort(bound, kind="stable")[: int((bound < own_s).sum())]
        best_s, best = np.inf, None
        for rows in (part for part in np.split(order, [1, LEADERS]) if len(part)):
            priced = np.sort(rows)
            mask = np.isin(np.arange(len(bound)), priced)
            bound[priced] = contest.rivals.take(mask).seconds(setting)
            if bound[priced].min() < best_s:
                best = int(priced[bound[priced].argmin()])
                best_s = float(bound[best])
            if enough and not is_best(own_s, best_s):
                break
        self.known[factor] = bound
        return StepTimesUnderRate(own_s, best_s, None if best is None else contest.rivals.plan(best))

    def _bound(self, factor: float) -> Floats:
        """Return the lower bound of every rival's step in seconds."""
        bounds = [seconds * min(1.0, at / factor) for at, seconds in self.known.items()]
        return np.asarray(np.max(bounds, axis=0))


def _formed(plan: ShortPlan, subject: ExplainedPlan) -> bool:
    """Return true if a plan has a closed form and the subject's rank order."""
    alike = plan.layout.rank_order == subject.header.layout.rank_order
    return alike and has_form(plan.pipeline.choice)
