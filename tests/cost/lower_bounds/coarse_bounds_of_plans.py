"""Coarse bounds of any legal plans whose stages are balanced, over the bounds of each variant."""

import numpy as np

from meshwright.cost.lower_bounds.coarse_time_and_memory import CoarseBounds, VariantBounds
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting


def coarse_bounds(plans: PlanArrays, setting: Setting) -> CoarseBounds:
    """Bounds of legal plans whose stages are balanced."""
    columns = [plans.recompute, plans.order, plans.context, plans.offload]
    alike = distinct([*columns, plans.sequence_parallel.astype(np.int64)])
    seconds, held = np.zeros(len(plans)), np.zeros(len(plans))
    for rows in alike.groups():
        some = plans.take(rows)
        found = VariantBounds(some, setting).of(some)
        seconds[rows], held[rows] = found.step_s, found.total_bytes
    return CoarseBounds(held, lambda: seconds)
