"""Enumerate all orders of few nodes, or of many alike nodes, and return the one with the shortest step.

Two nodes are alike where they can change places and every link stays as fast as it was, and every tier as it was. Nodes
of one kind are interchangeable, so N!/(n_1!·n_2!·…) arrangements stand for all N! orders. Of these only those are
priced whose slowdowns no other arrangement's are below.
"""

from collections.abc import Iterator
from math import factorial, prod

import numpy as np

from meshwright.placement.node_order.problem import Ints, Task, least_slow
from meshwright.program.layouts.node_hops import Fabric

MOST = 50_000
"""Arrangements that are enumerated: all orders of 8 nodes are 40,320."""


def alike_nodes(fabric: Fabric) -> Ints:
    """Return the kind of every node, numbered in the order of their first nodes."""
    kinds = np.full(fabric.nodes, -1)
    firsts: list[int] = []
    for node in range(fabric.nodes):
        same = (kind for kind, first in enumerate(firsts) if _interchangeable(fabric, first, node))
        kinds[node] = next(same, len(firsts))
        if kinds[node] == len(firsts):
            firsts.append(node)
    return kinds


def _interchangeable(fabric: Fabric, one: int, other: int) -> bool:
    if any(fabric.units(tier)[one] != fabric.units(tier)[other] for tier in fabric.tiers):
        return False
    rest = np.ones(fabric.nodes, dtype=bool)
    rest[[one, other]] = False
    table = fabric.slowness
    across = table[one, other] == table[other, one]
    return bool(
        across
        and (table[one, rest] == table[other, rest]).all()
        and (table[rest, one] == table[rest, other]).all()
    )


def arrangements(kinds: Ints) -> int:
    """Count the distinct orders: N!/(n_1!·n_2!·…)."""
    return factorial(len(kinds)) // prod(map(factorial, np.bincount(kinds).tolist()))


def all_orders(kinds: Ints) -> Ints:
    """Return an order of nodes for every arrangement of their kinds; nodes of one kind keep their order."""
    rows = np.array(list(_arranged(np.bincount(kinds).tolist(), len(kinds))), dtype=np.int64)
    members = np.argsort(kinds, kind="stable")
    orders = np.empty_like(rows)
    orders[np.arange(len(rows))[:, None], np.argsort(rows, axis=1, kind="stable")] = members
    return orders


def _arranged(left: list[int], places: int) -> Iterator[tuple[int, ...]]:
    if not places:
        yield ()
        return
    for kind, count in enumerate(left):
        if count:
            left[kind] -= 1
            for rest in _arranged(left, places - 1):
                yield (kind, *rest)
            left[kind] += 1


def best_of_all(task: Task, kinds: Ints) -> tuple[Ints, float]:
    """Return the best order and its seconds; of equally good ones the first."""
    orders = all_orders(kinds)
    slowdowns = task.slowdowns(orders)
    chosen = least_slow(slowdowns)
    seconds = [task.step_s(slowdowns[row]) for row in chosen]
    best = int(np.argmin(seconds))
    return orders[chosen[best]], seconds[best]
