"""The best order of a cluster's nodes for a plan: exact where few orders differ, annealed otherwise, with a bound."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.placement.node_order.annealing import walked
from meshwright.placement.node_order.exhaustive import MOST, alike_nodes, arrangements, best_of_all
from meshwright.placement.node_order.lower_bound import least_slowdowns
from meshwright.placement.node_order.problem import Ints, Task, least_slow
from meshwright.placement.node_order.step_surrogate import guide_for

CERTAIN = 1e-9
"""A bound that is nearer to what was found, relatively, is that."""


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """An order of nodes, its step and that of the order as listed, in seconds; no order's step is below ``bound_s``."""

    order: tuple[int, ...]
    step_s: float
    as_listed_s: float
    bound_s: float
    exact: bool

    @property
    def gained(self) -> float:
        """The part of the step, as listed, that the order saves."""
        return 1 - self.step_s / self.as_listed_s

    @property
    def gap(self) -> float:
        """By what part the step may still be above the best one's."""
        return 0.0 if self.exact else max(0.0, self.step_s / self.bound_s - 1)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "node_order": list(self.order),
            "step_time_s": self.step_s,
            "step_time_as_listed_s": self.as_listed_s,
            "step_time_bound_s": self.bound_s,
            "gained": self.gained,
            "gap": self.gap,
            "exact": self.exact,
        }

    @property
    def changes(self) -> bool:
        """Another order than the one listed."""
        return self.order != tuple(sorted(self.order))


def solve_node_order(task: Task, seed: int = 0, most: int = MOST) -> NodePlacement:
    """Return the best order found; the listed one where none is better, so that no plan gets worse.

    Up to ``most`` arrangements are enumerated; of more the best are looked for by walks that ``seed`` decides.
    """
    listed = task.slowdowns(task.as_listed[None])[0]
    as_listed = task.step_s(listed)
    if (listed <= 1).all():
        return _kept(task, as_listed)
    kinds = alike_nodes(task.fabric)
    if arrangements(kinds) <= most:
        order, step = best_of_all(task, kinds)
        return (
            _kept(task, as_listed)
            if step >= as_listed
            else NodePlacement(_plain(order), step, as_listed, step, True)
        )
    bound = min(as_listed, bound_s(task))
    if bound >= as_listed * (1 - CERTAIN):
        return _kept(task, as_listed)
    orders = walked(task, guide_for(task), seed)
    slowdowns = task.slowdowns(orders)
    best = min(((task.step_s(slowdowns[row]), row) for row in least_slow(slowdowns)), default=(np.inf, 0))
    step, order = best[0], orders[best[1]]
    if step >= as_listed:
        step, order = as_listed, task.as_listed
    return NodePlacement(_plain(order), step, as_listed, bound, step <= bound * (1 + CERTAIN))


def bound_s(task: Task) -> float:
    """Seconds that no order's step is below."""
    return task.step_s(least_slowdowns(task))


def _kept(task: Task, seconds: float) -> NodePlacement:
    """Return the listed order as the best one."""
    return NodePlacement(_plain(task.as_listed), seconds, seconds, seconds, True)


def _plain(order: Ints) -> tuple[int, ...]:
    return tuple(map(int, order))
