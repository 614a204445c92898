"""Orders of many nodes by simulated annealing of the guide's J, with several walks in parallel.

The slowest hop of a kind decides, so most changes change nothing; to tell them apart J has a little of the mean over
all hops added. Half of all moves begin at an end of the hop that costs most. Temperatures fall geometrically from what
moves cost at first; walks begin at the order as listed, with near nodes together, at chains of nearest neighbours, and
at random. At the end the best are improved by swaps (``swap_descent.py``). The number of moves follows from how many
hops have to be looked up, not from a clock: the same seed gives the same order everywhere.
"""

from dataclasses import dataclass

import numpy as np

from meshwright.placement.node_order.nearest_first import near_together
from meshwright.placement.node_order.problem import Floats, Ints, Task
from meshwright.placement.node_order.step_surrogate import Guide
from meshwright.placement.node_order.swap_descent import Neighbours, descended

WALKS = 32
LOOK_UPS = 3 * 10**7
"""Hops that are looked up in all; less than a second."""
ROUNDS = 200, 4000
"""Moves of each walk, at least and at most."""
OF_MEAN = 0.05
"""Weight of the mean over all hops, relative to the slowest one."""
COLDEST = 1e-3
KEPT = 4


@dataclass(frozen=True, eq=False)
class Felt:
    """The annealing cost of orders, in seconds above the guide's base, and the start of each one's costliest hop."""

    seconds: Floats
    place: Ints


@dataclass(frozen=True, eq=False)
class Ground:
    """The cost of a task's hops by the guide: (n, n) seconds of a link for each kind."""

    task: Task
    guide: Guide
    links: tuple[Floats, ...]

    @staticmethod
    def of(task: Task, guide: Guide) -> "Ground":
        """Compute the hop costs of a task."""
        slowness = np.maximum(1.0, task.fabric.slowness)
        return Ground(task, guide, tuple(guide.added(kind, slowness) for kind in range(len(task.groups))))

    def feel(self, orders: Ints) -> Felt:
        """Each order: (k, n)."""
        total = np.zeros(len(orders))
        dearest, place = np.full(len(orders), -1.0), np.full(len(orders), -1)
        for kind, hops in enumerate(self.task.hops):
            if not len(hops):
                continue
            costs = self.links[kind][orders[:, hops.source], orders[:, hops.target]]
            at = costs.argmax(1)
            worst = costs[np.arange(len(orders)), at]
            mean = costs.mean(1)
            if self.task.fabric.tiers:
                slowdowns = self.task.fabric.slowdowns(hops, orders)
                worst = np.maximum(worst, self.guide.added(kind, slowdowns))
            total += worst + OF_MEAN * mean
            place = np.where(worst > dearest, hops.source[at], place)
            dearest = np.maximum(dearest, worst)
        return Felt(total, place)


def walked(task: Task, guide: Guide, seed: int) -> Ints:
    """Good orders, the best of some walks: (k, n)."""
    rng, ground = np.random.default_rng(seed), Ground.of(task, guide)
    now = _starts(task, ground, rng)
    felt = ground.feel(now)
    best, best_s = now.copy(), felt.seconds.copy()
    hops = max(1, sum(len(hops) for hops in task.hops))
    rounds = int(np.clip(LOOK_UPS // (WALKS * hops), *ROUNDS))
    hot = max(float(np.abs(ground.feel(changed(now, rng, felt.place)).seconds - felt.seconds).mean()), 1e-12)
    for number in range(rounds):
        heat = hot * COLDEST ** (number / rounds)
        at = np.where(rng.random(len(now)) < 0.5, felt.place, -1)
        tried = changed(now, rng, at)
        other = ground.feel(tried)
        rise = other.seconds - felt.seconds
        taken = rng.random(len(now)) < np.exp(-np.maximum(0.0, rise) / heat)
        now = np.where(taken[:, None], tried, now)
        felt = Felt(np.where(taken, other.seconds, felt.seconds), np.where(taken, other.place, felt.place))
        better = felt.seconds < best_s
        best[better], best_s[better] = now[better], felt.seconds[better]
    chosen = np.argsort(best_s, kind="stable")[:KEPT]
    kinds = [
        Neighbours.of(hops, costs) for hops, costs in zip(task.hops, ground.links, strict=True) if len(hops)
    ]
    near = np.array(near_together(task.fabric))
    return np.stack([near, *(order for row in chosen for order in (best[row], *descended(kinds, best[row])))])


def _starts(task: Task, ground: Ground, rng: np.random.Generator) -> Ints:
    """Return the listed order, near nodes together, nearest-neighbour chains, and random orders."""
    distance = np.sum(ground.links, axis=0)
    chains = [_nearest_chain(distance, first) for first in rng.permutation(task.places)[: WALKS // 2]]
    random = [rng.permutation(task.places) for _ in range(WALKS - 2 - len(chains))]
    return np.stack([task.as_listed, np.array(near_together(task.fabric)), *chains, *random])


def _nearest_chain(distance: Floats, first: int) -> Ints:
    """From a node to the nearest that is left, and on."""
    order, left = [first], np.ones(len(distance), dtype=bool)
    left[first] = False
    while left.any():
        order.append(int(np.where(left, distance[order[-1]], np.inf).argmin()))
        left[order[-1]] = False
    return np.array(order)


def changed(orders: Ints, rng: np.random.Generator, at: Ints) -> Ints:
    """Each order changed by a move of its own; ``at`` is a place that its move begins with, or −1 for any: (k, n).

    Two nodes are swapped, one is moved, a run is reversed as in 2-opt, or two blocks are swapped, which begin at
    multiples of their length like the groups of a grid (Pipette, arXiv 2405.18093, has the first three).
    """
    count, places = orders.shape
    one = np.where(at < 0, rng.integers(places, size=count), at)[:, None]
    other = ((one[:, 0] + rng.integers(1, places, size=count)) % places)[:, None]
    here = np.arange(places)[None]
    length = _lengths(places)[rng.integers(len(_lengths(places)), size=count)][:, None]
    moves = np.stack([_swapped(here, one, other, 1), _moved(here, one, other), _reversed(here, one, other)])
    moves = np.concatenate([moves, _swapped(here, one, other, length)[None]])
    source = moves[rng.integers(len(moves), size=count), np.arange(count)]
    return np.take_along_axis(orders, source, axis=1)


def _lengths(places: int) -> Ints:
    """Lengths of blocks that divide the places."""
    dividing = [length for length in range(1, places // 2 + 1) if places % length == 0]
    return np.array(dividing or [1])


def _swapped(here: Ints, one: Ints, other: Ints, length: Ints | int) -> Ints:
    """Where each place takes its node from when the blocks around two places change places."""
    first, second = one // length, other // length
    block, shift = here // length, (second - first) * length
    return np.where(block == first, here + shift, np.where(block == second, here - shift, here))


def _moved(here: Ints, one: Ints, other: Ints) -> Ints:
    """Move the node at ``one`` to place ``other``."""
    between = (here >= np.minimum(one, other)) & (here <= np.maximum(one, other))
    step = np.where(one < other, 1, -1)
    return np.where(here == other, one, np.where(between, here + step, here))


def _reversed(here: Ints, one: Ints, other: Ints) -> Ints:
    """Reverse the run between two places."""
    between = (here >= np.minimum(one, other)) & (here <= np.maximum(one, other))
    return np.where(between, one + other - here, here)
