"""Find the best plan of a cluster without explanations, for comparisons of many clusters."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.single_best import ROOM, Best, best_below
from meshwright.verbs.plan.clusters.cluster_bounds import ClusterBounds, bound_clusters
from meshwright.verbs.plan.search_space import Scope, scoring, search


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The plan at a row, and the seconds of its step."""

    plans: PlanArrays
    row: int
    step_s: float


def best_plan(scope: Scope, setting: Setting, enough: float, bounds: ClusterBounds) -> BestPlan | None:
    """Return the best plan; None where nothing fits, or where it takes ``enough`` seconds or more.

    Among plans without closed forms it is found whatever is enough. ``bounds`` are those of the cluster.
    """
    if not bounds.known:
        _, found = search(replace(scope, top=1), setting)
        rows = found.top(1)
        return BestPlan(found.plans, rows[0], float(found.step_s[rows[0]])) if rows else None
    best = _best_of(bounds, setting, min(enough, bounds.others_s))
    if bounds.others_s < enough if best is None else bounds.others_s <= best.step_s * ROOM:
        (every,) = bound_clusters([(scope, setting)], kept=None)
        best = _best_of(every, setting, enough)
    return None if best is None else BestPlan(best.plans, 0, best.step_s)


def _best_of(bounds: ClusterBounds, setting: Setting, enough: float) -> Best | None:
    def take(rows: NDArray[np.int64]) -> PlanArrays:
        return bounds.space.every(*np.divmod(bounds.rows[rows], len(bounds.space.base))).plans

    return best_below(bounds.floors, take, scoring(setting), enough)
