"""Hops between nodes: the nodes that the groups of an axis connect, under a given order of the nodes.

Ranks fill *places* of ``per_node`` ranks one after the other; an order says which node each place is. A ring goes
through its members in the order of their ranks and back to the first, a chain does not go back, all-to-all goes between
all. A hop carries a *load*, counted in cards that are busy for as long as a card of the collective is:

    ring      g for each ring: of P bytes a card sends P/g, g being the members in a fast domain, and the hop carries P
    chain     1 for each chain
    all       for each group m_a·m_b/(n − g): each of m_a members sends 1/n of P to each of m_b, a card (n − g)/n of P

How many times longer than between cards of full rate a collective takes is the largest of: 1, card over link of every
hop, and for every unit of a tier (D devices with uplinks of D/o cards) o/D times the load of the hops that leave it or
enter it, whichever is more. Accepts many orders at once. Groups take their turns alike, so that all of them are as slow
as the slowest: no step ends before its slowest ring.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Tier

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Shape = Literal["ring", "chain", "loop", "all"]
"""A ring of a collective, a chain of messages, a chain whose last member sends to the first, too, or all to all."""
Pairs = Literal["", "all", "ends"]
"""No pairs, or those of places on an axis that mirror each other: all of them, or that of its ends."""
CROSSINGS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class Hops:
    """Directed hops between different places, each once: (h,) places and the load of all groups together."""

    source: Ints
    target: Ints
    load: Floats

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Fabric:
    """Nodes as they lie: ``slowness[i, j]`` is card over link, ``tiers`` with the unit of each node in ``units``."""

    slowness: Floats
    per_node: int
    tiers: tuple[Tier, ...] = ()

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.slowness)

    @property
    def alike(self) -> bool:
        """Return true if all links are as fast as the cards; tiers may still differ."""
        return bool((self.slowness <= 1).all())

    def units(self, tier: Tier) -> Ints:
        """Return the unit of a tier that each node is in."""
        return np.arange(self.nodes) * self.per_node // tier.devices

    def slowdowns(self, hops: Hops, orders: Ints) -> Floats:
        """Return the slow-down of these hops under each order: (k, places) nodes → (k,), at least 1."""
        result = np.ones(len(orders))
        if not len(hops):
            return result
        at_once = max(1, CROSSINGS_AT_ONCE // len(hops))
        for begin in range(0, len(orders), at_once):
            part = orders[begin : begin + at_once]
            one, other = part[:, hops.source], part[:, hops.target]
            slowest = np.maximum(1.0, self.slowness[one, other].max(1))
            for tier in self.tiers:
                slowest = np.maximum(slowest, self._uplinks(tier, hops.load, one, other))
            result[begin : begin + at_once] = slowest
        return result

    def _uplinks(self, tier: Tier, load: Floats, one: Ints, other: Ints) -> Floats:
        """Return the slow-down by the busiest unit's uplinks."""
        unit = self.units(tier)
        count, rows = int(unit[-1]) + 1, np.arange(len(one))[:, None]
        leaves, enters = unit[one], unit[other]
        crossing = np.where(leaves != enters, load, 0.0)
        busiest = [
            np.bincount((rows * count + side).ravel(), crossing.ravel(), len(one) * count)
            for side in (leaves, enters)
        ]
        per_order = np.maximum(*busiest).reshape(len(one), count).max(1)
        return np.asarray(tier.oversubscription * per_order / tier.devices)


@dataclass(frozen=True, slots=True)
class Groups:
    """All groups of ``ranks`` ranks over axes of some sizes and strides, and the shape of what they do.

    ``names`` are the axes' names; ``together`` of a group's members share a fast domain. ``mirrored``: not groups over
    the one axis, but pairs of its places that mirror each other, all of them or those of its ends.
    """

    axes: tuple[tuple[int, int], ...]
    ranks: int
    shape: Shape
    together: int
    mirrored: Pairs = ""
    names: tuple[str, ...] = ()

    def members(self) -> Ints:
        """Ranks: (groups, members)."""
        if not self.mirrored:
            return groups_over(self.axes, self.ranks)
        ((size, stride),) = self.axes
        return opposite_rank_pairs(size, stride, self.ranks, self.mirrored == "ends")

    def hops(self, per_node: int) -> Hops:
        """Hops between places of so many ranks."""
        return hops_of(self.members(), per_node, self.shape, self.together)


@lru_cache(maxsize=4096)
def slowdown(groups: Groups, fabric: Fabric, order: tuple[int, ...]) -> float:
    """Return the slow-down of the groups' collectives with place i on node ``order[i]``."""
    return float(fabric.slowdowns(groups.hops(fabric.per_node), np.array([order]))[0])


def groups_over(axes: Sequence[tuple[int, int]], ranks: int) -> Ints:
    """Return the ranks of all groups over axes of some sizes and strides: (groups, members), ascending."""
    every = np.arange(ranks)
    first = np.ones(ranks, dtype=bool)
    offsets = np.zeros(1, dtype=np.int64)
    for size, stride in sorted(axes, key=lambda axis: axis[1]):
        first &= every // stride % size == 0
        offsets = (np.arange(size)[:, None] * stride + offsets).ravel()
    return every[first][:, None] + offsets


def opposite_rank_pairs(size: int, stride: int, ranks: int, ends_only: bool) -> Ints:
    """Pairs of ranks whose places on an axis mirror each other, i and size − 1 − i; or those of its ends alone."""
    every = np.arange(ranks)
    index = every // stride % size
    low = every[index == 0] if ends_only else every[2 * index < size - 1]
    return np.stack([low, low + (size - 1 - 2 * (low // stride % size)) * stride], 1)


def hops_of(groups: Ints, per_node: int, shape: Shape, together: int) -> Hops:
    """Return the hops of groups of ranks; ``together`` of each group's members share a fast domain."""
    places = groups // per_node
    count = int(places.max()) + 1
    if shape == "all":
        members = np.zeros((len(places), count))
        np.add.at(members, (np.arange(len(places))[:, None], places), 1.0)
        table = members.T @ members / max(1, groups.shape[1] - together)
        np.fill_diagonal(table, 0.0)
        source, target = np.nonzero(table)
        return Hops(source, target, table[source, target])
    source, target = places[:, :-1].ravel(), places[:, 1:].ravel()
    if shape in ("ring", "loop"):
        source, target = (np.concatenate([a, places[:, i]]) for a, i in ((source, -1), (target, 0)))
    moved = source != target
    codes, inverse = np.unique(source[moved] * count + target[moved], return_inverse=True)
    load = np.bincount(inverse, minlength=len(codes)).astype(np.float64)
    return Hops(codes // count, codes % count, load * together if shape == "ring" else load)
