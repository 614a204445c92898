"""The Pareto set of a search in step time and memory: plans that no other one beats in both."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.search.algorithms.exhaustive import RankedPlans


@dataclass(frozen=True, slots=True)
class TimeMemoryPoint:
    """A plan of the Pareto set: its step in seconds, and the bytes on its fullest device."""

    plan: ShortPlan
    step_s: float
    total_bytes: float

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "plan": self.plan.to_data(),
            "step_time_s": self.step_s,
            "memory_bytes": round(self.total_bytes),
        }


def time_memory_front(
    found: RankedPlans, header: ShortPlan, ratio: float = np.inf
) -> tuple[TimeMemoryPoint, ...]:
    """Return the plans that fit and that no other plan found beats in time and memory, the fastest first.

    ``ratio``: only plans that take at most so many times the fastest one's time. ``header`` has the nouns of the plans.
    """
    times, sizes = found.step_s[found.ranking], found.total_bytes[found.ranking]
    order = np.lexsort((sizes, times))
    least_before = np.minimum.accumulate(np.concatenate([[np.inf], sizes[order]]))[:-1]
    front = order[sizes[order] < least_before]
    within = front[times[front] <= ratio * times.min(initial=np.inf)]
    rows = found.ranking[within].tolist()
    return tuple(
        TimeMemoryPoint(
            short_plan(found.plans, row, header), float(found.step_s[row]), float(found.total_bytes[row])
        )
        for row in rows
    )
