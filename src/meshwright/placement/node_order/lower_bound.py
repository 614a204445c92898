"""A lower bound of the step over all node orders, from the fastest links that each kind of group must use.

Where a kind's hops are all to be on links of at most x, the graph of such links must have room for the graph of hops:
node by node enough neighbours (the k-th largest degree of one against that of the other), and components whose sizes
the sizes of connected groups add up to, so that the greatest common divisor of the latter divides each of the former.
The least x that keeps both is found for each kind by itself, and the step priced with all of them together. What this
ignores: that one order has to serve all kinds, tiers, and whether a ring can be closed; so the true best may be longer.
"""

import numpy as np

from meshwright.placement.node_order.problem import Floats, Ints, Task
from meshwright.program.layouts.node_hops import Fabric, Hops


def least_slowdowns(task: Task) -> Floats:
    """For every kind of groups a slowdown that no order is below: (c,)."""
    return np.array([_least(task.fabric, hops) for hops in task.hops])


def _least(fabric: Fabric, hops: Hops) -> float:
    if not len(hops):
        return 1.0
    needed = _degrees(hops, fabric.nodes)
    divisor = int(np.gcd.reduce(_component_sizes(_table(hops, fabric.nodes))))
    values = np.unique(np.maximum(1.0, fabric.slowness[~np.eye(fabric.nodes, dtype=bool)]))
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if _has_room(fabric.slowness <= values[middle], needed, divisor):
            high = middle
        else:
            low = middle + 1
    return float(values[low])


def _has_room(linked: np.ndarray, needed: Ints, divisor: int) -> bool:
    table = linked & ~np.eye(len(linked), dtype=bool)
    if (np.sort(table.sum(1)) < needed).any():
        return False
    return not (_component_sizes(table) % divisor).any()


def _table(hops: Hops, places: int) -> np.ndarray:
    table = np.zeros((places, places), dtype=bool)
    table[hops.source, hops.target] = table[hops.target, hops.source] = True
    return table


def _degrees(hops: Hops, places: int) -> Ints:
    """Neighbours of every place, ascending."""
    return np.sort(_table(hops, places).sum(1))


def _component_sizes(table: np.ndarray) -> Ints:
    """Sizes of the connected components of a symmetric table."""
    left, sizes = np.ones(len(table), dtype=bool), []
    while left.any():
        reached = np.zeros(len(table), dtype=bool)
        front = reached.copy()
        front[int(np.argmax(left))] = True
        while front.any():
            reached |= front
            front = table[front].any(0) & ~reached
        sizes.append(int(reached.sum()))
        left &= ~reached
    return np.array(sizes)
