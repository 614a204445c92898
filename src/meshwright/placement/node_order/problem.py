"""The question: an order of nodes under which the slow links hurt a step least.

A step has kinds of groups (data-parallel rings, pipelines, experts' all-to-all, …), and an order makes each of them x_c
times slower than cards of full rate would: the slowest of its hops or uplinks (``program/layouts/node_hops.py``).
``step_s`` says how long the step takes then; it knows no nodes, and never falls when some x_c grows. So of all
orders only those matter whose x no other order's is below in all kinds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.program.layouts.node_hops import Fabric, Groups, Hops

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Price = Callable[[Floats], float]
"""Slowdowns of a task's groups, (c,), to seconds of a step."""


@dataclass(frozen=True, eq=False)
class Task:
    """``groups`` of ranks that fill the places of ``fabric``'s nodes, and what slow ones cost."""

    fabric: Fabric
    groups: tuple[Groups, ...]
    step_s: Price

    @property
    def places(self) -> int:
        """Nodes, and places for them."""
        return self.fabric.nodes

    @cached_property
    def hops(self) -> tuple[Hops, ...]:
        """The hops between places of each kind of group."""
        return tuple(groups.hops(self.fabric.per_node) for groups in self.groups)

    def slowdowns(self, orders: Ints) -> Floats:
        """Return the slow-down of each kind under each order: (k, places) → (k, c)."""
        found = [self.fabric.slowdowns(hops, orders) for hops in self.hops]
        return np.stack(found, 1) if found else np.ones((len(orders), 0))

    @cached_property
    def as_listed(self) -> Ints:
        """The order in which the cluster has its nodes."""
        return np.arange(self.places)


def least_slow(slowdowns: Floats) -> Ints:
    """Rows that no other row is below in one column and not above in any: the first of equal ones, ascending by sum."""
    order = np.argsort(slowdowns.sum(1), kind="stable")
    rows, kept = slowdowns[order], []
    left = np.ones(len(rows), dtype=bool)
    for index in range(len(rows)):
        if left[index]:
            kept.append(order[index])
            left &= (rows < rows[index]).any(1)
    return np.array(kept, dtype=np.int64)
