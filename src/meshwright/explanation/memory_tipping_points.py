"""The device memory at which the best plan changes: exact, because times do not depend on memory.

With more memory the leanest of the quicker plans begins to fit; with less the plan itself ceases to, or all that are
quicker than it do. A plan that does not fit begins to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from meshwright.cluster.cluster import Cluster
from meshwright.cost.constants import constant_on
from meshwright.cost.memory.memory_breakdown import fits
from meshwright.explanation.best_alternative import StepTimesUnderRate
from meshwright.explanation.cluster_resources import device_memory
from meshwright.explanation.plan_difference import ExplainedPlan, PlanDifference
from meshwright.explanation.threshold_search import Bracket
from meshwright.explanation.tipping_points import TippingPoint, make_tipping_point
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.search.algorithms.exhaustive import TIE, Floats, RankedPlans
from meshwright.units import format_bytes

MOST = 4.0
"""So many times a device's memory is looked at for plans that begin to fit."""


@dataclass(frozen=True)
class Field:
    """Plans with their step times and peaks, found with ``MOST`` times the memory, and the neighbours behind them."""

    subject: ExplainedPlan
    found: RankedPlans
    besides: tuple[PlanDifference, ...]
    step_s: Floats
    total_bytes: Floats

    @classmethod
    def of(cls, subject: ExplainedPlan, found: RankedPlans, besides: Sequence[PlanDifference]) -> "Field":
        """Return the plans found, and the neighbours that have a short form."""
        short = tuple(one for one in besides if isinstance(one.plan, ShortPlan))
        step_s = np.array([one.forecast.step_s for one in short])
        total = np.array([one.forecast.total_bytes for one in short])
        return cls(
            subject,
            found,
            short,
            np.concatenate([np.where(found.fits, found.step_s, inf), step_s]),
            np.concatenate([found.total_bytes, total]),
        )

    @property
    def quicker(self) -> Floats:
        """Peaks of the plans that would beat the subject if they fit."""
        return self.total_bytes[self.step_s < (1 - TIE) * self.subject.forecast.step_s]

    def round(self, capacity: int) -> StepTimesUnderRate:
        """Return the step times of the plans that fit in so many bytes per device."""
        own = self.subject.forecast
        own_s = own.step_s if fits(own.total_bytes, own.cluster, capacity) else inf
        seconds = np.where(fits(self.total_bytes, own.cluster, capacity), self.step_s, inf)
        row = int(seconds.argmin()) if len(seconds) else -1
        if row < 0 or seconds[row] == inf:
            return StepTimesUnderRate(own_s, inf, None)
        return StepTimesUnderRate(own_s, float(seconds[row]), self._plan(row))

    def _plan(self, row: int) -> ShortPlan:
        if row < len(self.found.plans):
            return short_plan(self.found.plans, row, self.subject.header.model_copy(update={"gather": None}))
        plan = self.besides[row - len(self.found.plans)].plan
        assert isinstance(plan, ShortPlan)
        return plan


def memory_tipping_points(field: Field) -> Iterator[TippingPoint]:
    """Yield the changes of device memory that change the best plan."""
    own = field.subject.forecast
    leanest = float(field.quicker.min(initial=inf))
    if not own.fits:
        prefix = f"this plan fits, with {format_bytes(own.total_bytes)}; "
        yield _tipping_point(field, least_capacity(own.total_bytes, own.cluster), 1, prefix)
    elif fits(leanest, own.cluster):
        if own.total_bytes < leanest:
            yield _tipping_point(field, least_capacity(leanest, own.cluster) - 1, -1)
    else:
        if leanest < inf:
            yield _tipping_point(field, least_capacity(leanest, own.cluster), 1)
        yield _tipping_point(
            field, least_capacity(own.total_bytes, own.cluster) - 1, -1, "this plan no longer fits; "
        )


def _tipping_point(field: Field, capacity: int, way: int, prefix: str = "") -> TippingPoint:
    resource, now = device_memory(field.subject.setting), field.subject.forecast.capacity_bytes
    bracket = Bracket((capacity - way) / now, capacity / now)
    return make_tipping_point(field.subject, resource, bracket, field.round(capacity), prefix)


def least_capacity(total_bytes: float, cluster: Cluster) -> int:
    """Return the smallest memory of a device, in bytes, in which a peak fits."""
    least = ceil(total_bytes / constant_on(cluster, "usable_memory"))
    while not fits(total_bytes, cluster, least):
        least += 1
    return least
