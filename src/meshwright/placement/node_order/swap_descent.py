"""Improve an order by the best of all swaps until none helps.

The slowest hop of a kind is a maximum, which hardly any swap changes; so kinds are summed up by power means in its
place, E_p = Σ_c (Σ_h w_c(h)^p)^(1/p) with w_c(h) the seconds that hop h would cost, for ever larger p. For one p what
every swap of two nodes changes follows from tables, as for a quadratic assignment: with C_c[a, v] the sum over the
neighbours of place a if node v were there,

    Δ_c(a, b) = C[a, v_b] + C[b, v_a] − C[a, v_a] − C[b, v_b] + 2·A_c[a, b]·w_c(v_a, v_b)^p.

Uplinks of tiers are left out; who is given the result looks whether it is better.
"""

from dataclasses import dataclass

import numpy as np

from meshwright.placement.node_order.problem import Floats, Ints
from meshwright.program.layouts.node_hops import Hops

POWERS = 1, 4, 16, 64
STEPS = 4
"""Swaps for each power, in times of the nodes, at most."""
LITTLE = 1e-12


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The places between which a kind has hops, and every link's cost, 0 for a node itself: (n, n), seconds."""

    between: Floats
    costs: Floats

    @staticmethod
    def of(hops: Hops, costs: Floats) -> "Neighbours":
        """Return the table of a kind's hops."""
        table = np.zeros_like(costs)
        table[hops.source, hops.target] = table[hops.target, hops.source] = 1.0
        own = costs.copy()
        np.fill_diagonal(own, 0.0)
        return Neighbours(table, own)

    def worst(self, order: Ints) -> float:
        """Return the seconds of the costliest hop."""
        return float((self.between * self.costs[np.ix_(order, order)]).max())


def descended(kinds: list[Neighbours], order: Ints) -> list[Ints]:
    """Return the order after descent at each power."""
    found = []
    for power in POWERS:
        order = _at_power(kinds, order, power)
        found.append(order)
    return found


def _at_power(kinds: list[Neighbours], order: Ints, power: int) -> Ints:
    """Swap while that helps; the concave root is linearised, so that the true cost falls by no less."""
    worst = [kind.worst(order) for kind in kinds]
    scaled = [
        (kind.between, scale, (kind.costs / scale) ** power)
        for kind, scale in zip(kinds, worst, strict=True)
        if scale > 0
    ]
    for _ in range(STEPS * len(order)):
        rise = np.zeros((len(order), len(order)))
        for between, scale, costs in scaled:
            here = costs[np.ix_(order, order)]
            whole = float((between * here).sum()) / 2
            if whole > 0:
                rise += scale * whole ** (1 / power - 1) * _changes(between, here)
        one, other = divmod(int(rise.argmin()), len(order))
        if rise[one, other] >= -LITTLE * sum(worst):
            break
        order = order.copy()
        order[[one, other]] = order[[other, one]]
    return order


def _changes(between: Floats, here: Floats) -> Floats:
    """By how much the sum over all hops grows with the nodes of every two places swapped: (n, n)."""
    table = between @ here
    own = np.diagonal(table)
    change = table + table.T - own[:, None] - own[None] + 2 * between * here
    np.fill_diagonal(change, 0.0)
    return np.asarray(change)
