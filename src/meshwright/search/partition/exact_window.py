"""Exact cuts of a window of stages that lie on distinct ranks, with all other stages as they are.

With one stage a rank the window is the whole pipeline, and the cut is the best there is. For stages s of the window,
g(s, i, j) = load of its rank when s holds the layers i to j exclusive, in the mode in which that is least and the
rank's limit is kept (∞ where there is none):

    best(s + 1, j) = min over i < j of max(best(s, i), g(s, i, j)),

and, of all cuts whose largest load is no larger than that and those of the other ranks, the one with the least sum
of squares of what the stages cost: the same recursion with sums. A rank's load depends on no other stage of the
window, so that choosing the mode stage by stage, inside g, is exact too. O(modes · moments · n²·S) for S stages and
n layers.
"""

from itertools import pairwise

import numpy as np

from meshwright.search.partition.layer_chain import Cut, Floats, Ints, Measure
from meshwright.search.partition.objective import ALIKE, Task


def recut(task: Task, cut: Cut, stages: range) -> Cut | None:
    """Return the best cut that differs only inside a window; None where none keeps the limit."""
    loads, costs, modes = _window(task, cut, stages)
    level = max(_least_largest(loads), _others(task, cut, stages))
    if not np.isfinite(level):
        return None
    inner = _least_squares(np.where(loads <= level * (1 + ALIKE), costs, np.inf))
    chosen = [int(modes[stage, i, j]) for stage, (i, j) in enumerate(pairwise(inner))]
    first, last = stages.start, stages.stop
    stops = [cut.stops[first] + place for place in inner]
    return Cut(
        (*cut.stops[:first], *stops, *cut.stops[last + 1 :]),
        (*cut.modes[:first], *chosen, *cut.modes[last:]),
    )


def _others(task: Task, cut: Cut, stages: range) -> float:
    """Return the largest load of the ranks that have no stage in the window."""
    inside = {task.chain.placement[stage] for stage in stages}
    loads = task.loads(cut)
    return max((float(loads[rank]) for rank in range(task.chain.ranks) if rank not in inside), default=0.0)


def _window(task: Task, cut: Cut, stages: range) -> tuple[Floats, Floats, Ints]:
    """g(s, i, j), what the stage alone costs then, and its mode; places count from the window's first."""
    placement = task.chain.placement
    ranks = [placement[stage] for stage in stages]
    rest = [stage for stage in range(len(placement)) if stage not in stages]
    places = slice(cut.stops[stages.start], cut.stops[stages.stop] + 1)

    def loads(measure: Measure) -> Floats:
        fixed = task.chain.moments(measure, cut, rest)[:, ranks] + measure.base[ranks]
        return np.stack([_largest(sums[:, stages, places], fixed) for sums in measure.sums])

    goal, limit = loads(task.goal), loads(task.limit)
    size = goal.shape[-1]
    behind = np.arange(size)[:, None] >= np.arange(size)
    goal[(limit > task.ceiling[ranks][:, None, None]) | behind] = np.inf
    modes = goal.argmin(0)
    alone = np.zeros((task.goal.costs.shape[1], len(ranks)))
    costs = np.stack([_largest(sums[:, stages, places], alone) for sums in task.goal.sums])
    return goal.min(0), np.take_along_axis(costs, modes[None], 0)[0], modes


def _largest(sums: Floats, fixed: Floats) -> Floats:
    """Return the largest over the moments: (moments, S, n + 1) and (moments, S) → (S, n + 1, n + 1)."""
    result = np.full((sums.shape[1], sums.shape[2], sums.shape[2]), -np.inf)
    for of_moment, besides in zip(sums, fixed, strict=True):
        pieces = of_moment[:, None, :] - of_moment[:, :, None] + besides[:, None, None]
        np.maximum(result, pieces, out=result)
    return result


def _least_largest(loads: Floats) -> float:
    best = np.where(np.arange(loads.shape[1]) == 0, 0.0, np.inf)
    for of_stage in loads:
        best = np.maximum(best[:, None], of_stage).min(0)
    return float(best[-1])


def _least_squares(costs: Floats) -> list[int]:
    """Return the stops of the cut with the least sum of squares."""
    total = np.where(np.arange(costs.shape[1]) == 0, 0.0, np.inf)
    came_from: list[Ints] = []
    for of_stage in costs:
        sums = total[:, None] + of_stage**2
        came_from.append(sums.argmin(0))
        total = sums.min(0)
    stops = [costs.shape[1] - 1]
    for before in reversed(came_from):
        stops.append(int(before[stops[-1]]))
    return stops[::-1]
