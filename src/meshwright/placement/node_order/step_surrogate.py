"""A surrogate of the step for searches among very many orders: J = base + Σ_c g_c(x_c).

g_c is what the c-th kind of groups adds to the step by itself when it is x times slower, priced at some x and taken to
be straight between them. What kinds hide of each other, J counts twice; so its best orders are priced in full.
"""

from dataclasses import dataclass

import numpy as np

from meshwright.placement.node_order.problem import Floats, Task

POINTS = 7


@dataclass(frozen=True, eq=False)
class Guide:
    """Curves: of each kind the slowdowns at which it was priced, ascending, and the seconds that they add."""

    base_s: float
    at: tuple[Floats, ...]
    adds_s: tuple[Floats, ...]

    def added(self, kind: int, slowdowns: Floats) -> Floats:
        """Seconds that a kind adds by itself at each slowdown; the shape of ``slowdowns``."""
        return np.interp(slowdowns, self.at[kind], self.adds_s[kind])

    def seconds(self, slowdowns: Floats) -> Floats:
        """J of rows of slowdowns: (k, c) → (k,)."""
        added = [self.added(kind, slowdowns[:, kind]) for kind in range(len(self.at))]
        return self.base_s + np.sum(added, axis=0)


def guide_for(task: Task) -> Guide:
    """Return the curves of a task, priced at the links' quantiles and at its uplinks' slowest."""
    kinds = len(task.groups)
    quick = np.ones(kinds)
    base = task.step_s(quick)
    at, adds = [], []
    for kind in range(kinds):
        points = _points(task, kind)
        rows = np.tile(quick, (len(points), 1))
        rows[:, kind] = points
        seconds = [base if point == 1 else task.step_s(row) for point, row in zip(points, rows, strict=True)]
        at.append(points)
        adds.append(np.maximum.accumulate(np.array(seconds) - base))
    return Guide(base, tuple(at), tuple(adds))


def _points(task: Task, kind: int) -> Floats:
    fabric, load = task.fabric, task.hops[kind].load.sum()
    links = np.maximum(1.0, fabric.slowness[~np.eye(fabric.nodes, dtype=bool)])
    uplinks = [tier.oversubscription * load / tier.devices for tier in fabric.tiers]
    spread = np.quantile(links, np.linspace(0, 1, POINTS))
    return np.unique([1.0, *spread, *(most for most in uplinks if most > 1)])
