"""Compute the step time from the start and end of each rank's passes, also if steps overlap.

Ranks that step together end a step when the last one does. Where steps are validated afterwards (``program/
step_validation.py``) each begins its next step when it has ended this one, so that all are at the pace of the one that
needs longest from its first pass to its end: as far ahead of the others as it begins, it also ends. It ends no earlier
than the ranks before it, whose sums it adds to its own; nor than a rank whose gradients it needs: the other end of a
pipeline that shares the embedding table, the ranks that have its layers too.
"""

import numpy as np

from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.pipeline_time.time_action_lists import Span


def step_length(group: PlanGroup, span: Span, after: Floats | float = 0.0) -> Floats:
    """Length of a step whose ranks still need ``after`` behind their passes: (n, P) → (n,)."""
    ends = span.end + after
    if not group.steps_overlap:
        return np.asarray(ends.max(1))
    return np.asarray((_together(group, ends) - span.begin).max(1))


def _together(group: PlanGroup, ends: Floats) -> Floats:
    """Return when each rank ends if it waits for the ranks that it meets and for those before it."""
    met = ends.copy()
    for ranks in _meetings(group):
        met[:, ranks] = ends[:, ranks].max(1)[:, None]
    return np.asarray(np.maximum.accumulate(met, 1))


def _meetings(group: PlanGroup) -> list[list[int]]:
    if group.kind.chains > 1:
        ways = group.kind.ways(group.ranks, group.chunks)
        same = (ways.same_layers(position) for position in range(ways.length))
        return [[group.placement[stage] for stage in stages] for stages in same]
    return [[group.placement[0], group.placement[-1]]] if group.tied_apart else []
