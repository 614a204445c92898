"""Enumerate all orders of few experts, without permuting places on a rank, ranks of a node, or nodes.

E experts on R ranks of N nodes have E!/((E/R)!^R·(R/N)!^N·N!) such arrangements. The least numbered expert that is left
opens the next part, so that each of them comes once.
"""

from collections.abc import Iterator
from itertools import combinations, product
from math import factorial

import numpy as np

from meshwright.placement.expert_order.problem import Ints, Task

MOST = 20_000
"""Arrangements that are enumerated: of 8 experts in pairs on two nodes there are 315."""
AT_ONCE = 2**12


def arrangements(experts: int, ranks: int, nodes: int) -> int:
    """Count the distinct orders."""
    alike = factorial(experts // ranks) ** ranks * factorial(ranks // nodes) ** nodes * factorial(nodes)
    return factorial(experts) // alike


def all_orders(experts: int, ranks: int, nodes: int) -> Ints:
    """Return an order for every arrangement: (arrangements, experts)."""
    found = []
    for on_nodes in _groups(tuple(range(experts)), experts // nodes):
        within = [list(_groups(node, experts // ranks)) for node in on_nodes]
        found += [np.concatenate([rank for node in chosen for rank in node]) for chosen in product(*within)]
    return np.array(found, dtype=np.int64)


def _groups(items: tuple[int, ...], size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not items:
        yield ()
        return
    first, *others = items
    for rest in combinations(others, size - 1):
        group = (first, *rest)
        left = tuple(item for item in others if item not in rest)
        for groups in _groups(left, size):
            yield (group, *groups)


def best_of_all(task: Task) -> Ints:
    """Return the best order of each layer, of equally good ones the first: (layers, experts)."""
    orders = all_orders(task.experts, task.ranks, task.nodes)
    best = np.empty((task.layers, task.experts), dtype=np.int64)
    for layer in range(task.layers):
        seconds = [
            task.seconds(task.meeting(part, np.full(len(part), layer)))
            for part in np.split(orders, range(AT_ONCE, len(orders), AT_ONCE))
        ]
        best[layer] = orders[int(np.concatenate(seconds).argmin())]
    return best
