"""A lower bound of the largest load of any cut: the layers packed into ranks in any order.

Embedding and head stay on the ranks of the first and the last stage. Of the others many are alike, so a rank's share
is a number of layers of each kind; a mixture is a number of each kind but the most frequent one. Every stage has a
layer, so that base has what the cheapest one costs there more than on the rank's cheapest stage. With x the least
that a layer of a kind costs on any stage of a rank, in any mode, rank r has room for

    n(r, mixture, B) = min over moments of (B − base_r − Σ mixture·x) / x(most frequent), rounded down,

layers of the most frequent kind, also under the limit. All layers fit below B if, dealt out rank by rank,

    room(r + 1, mixture) = max over mixtures o ≤ mixture of room(r, mixture − o) + n(r, o, B)

ends with as many as there are. A cut's loads are such packings, so the least B of a packing is a bound; it is one of
the loads that a rank can have, which makes it sharp where kinds are few. With more than ``MOST_MIXTURES`` mixtures it
is the mean load. O(P·mixtures²·log(loads)).
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np

from meshwright.search.partition.layer_chain import Floats, Ints, Measure
from meshwright.search.partition.objective import ALIKE, Task, kinds_of

MOST_MIXTURES = 256
SLACK = 1e-9
"""A rank has room for a layer that is too large by so much, relatively: the bound stays one under rounding."""


def mean_load(task: Task) -> float:
    """Return the mean load of a rank if every layer costs the least that it can."""
    return float((task.goal.least[:, -1].max() + task.goal.base.sum()) / task.chain.ranks)


def least_load(task: Task, known: float) -> float:
    """No cut that keeps the limit has a smaller largest load; at most ``known``, the load of a cut that is known."""
    simple = min(mean_load(task), known)
    packing = Packing(task)
    if packing.mixtures is None:
        return simple
    loads = packing.loads
    loads = loads[(loads > simple * (1 - SLACK)) & (loads < known * (1 - ALIKE))]
    low, high = 0, len(loads)
    while low < high:
        middle = (low + high) // 2
        if packing.fits(float(loads[middle])):
            high = middle
        else:
            low = middle + 1
    return max(simple, float(loads[low])) if low < len(loads) else known


@dataclass(frozen=True, eq=False)
class Packing:
    """The layers between the first and the last as counts of kinds, to be packed into ranks."""

    task: Task

    @cached_property
    def kinds(self) -> tuple[Ints, Ints]:
        """A layer of each kind and how often there is one, the most frequent kind last."""
        _, layers, counts = np.unique(kinds_of(self.task)[1:-1], return_index=True, return_counts=True)
        order = np.argsort(counts, kind="stable")
        return layers[order] + 1, counts[order]

    @cached_property
    def mixtures(self) -> Ints | None:
        """All mixtures: (n, kinds − 1); None where they are too many, or there are no layers."""
        counts = self.kinds[1][:-1].tolist()
        if not len(self.kinds[1]) or prod(count + 1 for count in counts) > MOST_MIXTURES:
            return None
        rows = list(product(*(range(count + 1) for count in counts)))
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(counts))

    def _each(self, measure: Measure) -> tuple[Floats, Floats]:
        """Return the fixed load of ranks, (moments, P), and the load of a layer of each kind, (moments, P, kinds)."""
        placement = np.array(self.task.chain.placement)
        least = measure.costs.min(0)
        ends = np.zeros((least.shape[0], self.task.chain.ranks)) + measure.base
        for stage, layer in ((0, 0), (-1, -1)):
            ends[:, placement[stage]] += least[:, stage, layer]
        inner = least[:, :, 1:-1]
        for stage in range(1, len(placement) - 1):
            elsewhere = inner[:, placement == placement[stage]].min(1)
            ends[:, placement[stage]] += (inner[:, stage] - elsewhere).min(1)
        ranks = [least[:, placement == rank].min(1) for rank in range(self.task.chain.ranks)]
        return ends, np.stack(ranks, 1)[:, :, self.kinds[0]]

    @cached_property
    def _goal(self) -> tuple[Floats, Floats]:
        return self._each(self.task.goal)

    @cached_property
    def _limit(self) -> tuple[Floats, Floats]:
        return self._each(self.task.limit)

    @cached_property
    def loads(self) -> Floats:
        """Every load that a rank can have at a moment, ascending."""
        assert self.mixtures is not None
        ends, each = self._goal
        mixed = ends[:, :, None] + each[:, :, :-1] @ self.mixtures.T
        steps = np.arange(self.kinds[1][-1] + 1)
        return np.unique(mixed[..., None] + each[:, :, -1, None, None] * steps)

    def fits(self, load: float) -> bool:
        """Return true if all layers can be packed with no rank above a load."""
        assert self.mixtures is not None
        rooms = np.minimum(
            self._rooms(self._goal, load), self._rooms(self._limit, self.task.ceiling[:, None])
        )
        packed = np.where(np.arange(len(self.mixtures)) == 0, 0.0, -np.inf)
        for room in rooms:
            packed = self._packed(packed, room)
        return bool(packed[-1] >= self.kinds[1][-1])

    def _rooms(self, costs: tuple[Floats, Floats], most: float | Floats) -> Floats:
        """n(r, mixture): (P, mixtures); −∞ where even the mixture has no room."""
        ends, each = costs
        assert self.mixtures is not None
        left = most - ends[:, :, None] - each[:, :, :-1] @ self.mixtures.T
        left = left + SLACK * np.abs(most)
        with np.errstate(divide="ignore", invalid="ignore"):
            rooms = np.floor(left / each[:, :, -1:])
        rooms = np.where(each[:, :, -1:] == 0, np.inf, rooms)
        return np.asarray(np.where(left < 0, -np.inf, rooms).min(0))

    def _packed(self, packed: Floats, room: Floats) -> Floats:
        """``packed`` with one more rank; mixtures are in counting order, so that numbers of rows can be subtracted."""
        assert self.mixtures is not None
        result = np.full_like(packed, -np.inf)
        for share in np.flatnonzero(room >= 0):
            at = np.flatnonzero((self.mixtures >= self.mixtures[share]).all(1))
            result[at] = np.maximum(result[at], packed[at - share] + room[share])
        return result
