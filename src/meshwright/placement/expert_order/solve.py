"""The best order of a model's experts: exact where few orders differ, annealed otherwise, with a bound."""

from dataclasses import dataclass

import numpy as np

from meshwright.placement.expert_order.annealing import walked
from meshwright.placement.expert_order.exhaustive import MOST, arrangements, best_of_all
from meshwright.placement.expert_order.lower_bound import least_seconds
from meshwright.placement.expert_order.problem import DispatchLoad, Floats, Ints, Task


@dataclass(frozen=True, eq=False)
class ExpertPlacement:
    """``orders`` (layers, experts), what they make of each layer and what the model's numbering does, in seconds too;
    no order's are below ``bound_s``."""

    orders: Ints
    meeting: DispatchLoad
    as_numbered: DispatchLoad
    seconds: Floats
    as_numbered_s: Floats
    bound_s: Floats
    exact: bool

    @property
    def gap(self) -> float:
        """By what part the layers together may still be above the best orders."""
        return 0.0 if self.exact else max(0.0, float(self.seconds.sum() / self.bound_s.sum()) - 1)

    @property
    def changes(self) -> bool:
        """Some layer has another order than the model's."""
        return bool((self.orders != np.arange(self.orders.shape[1])).any())


def solve_expert_order(task: Task, seed: int = 0, most: int = MOST) -> ExpertPlacement:
    """Return the best orders found; the model's numbering for a layer where none is better.

    Up to ``most`` arrangements are enumerated; of more the best are looked for by walks that ``seed`` decides.
    """
    layers = np.arange(task.layers)
    numbered = task.meeting(task.as_numbered, layers)
    exact = arrangements(task.experts, task.ranks, task.nodes) <= most
    found = best_of_all(task)[None] if exact else walked(task, seed)
    tried = np.concatenate([task.as_numbered[None], found])
    seconds = np.stack([task.seconds(task.meeting(orders, layers)) for orders in tried])
    best = seconds.argmin(0)
    orders, least = tried[best, layers], seconds[best, layers]
    bound = least if exact else np.minimum(least, least_seconds(task))
    return ExpertPlacement(orders, task.meeting(orders, layers), numbered, least, seconds[0], bound, exact)
