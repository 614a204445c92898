"""Ranks on a grid of named axes, and the groups that an axis (or several) makes of them.

Axes are listed from fastest to slowest varying: with ``order = (tp, pp)`` rank = tp_index + tp·pp_index. The
attention mesh and the experts' mesh are two grids over the same ranks. Group sizes, strides and the number of
members that share a fast domain are plain arithmetic and accept numpy arrays, so that closed forms over arrays of
plans and the lowering of one plan use the same lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = int | NDArray[Any]


def strides(sizes: Mapping[str, Ints], order: Sequence[str]) -> dict[str, Ints]:
    """Distance in ranks between neighbours along each axis; ``order`` is fastest first."""
    result: dict[str, Ints] = {}
    step: Ints = 1
    for axis in order:
        result[axis] = step
        step = step * sizes[axis]
    return result


def members_in_domain(sizes: Sequence[Ints], steps: Sequence[Ints], domain: Ints) -> Ints:
    """How many members of a group over the given axes share one domain of ``domain`` consecutive ranks.

    Per axis of size n and stride t: gcd(n·t, D) / t, at least 1: n where the axis fits, D/t where it runs
    over, and the worst-placed group's count where sizes do not divide. Exact when sizes divide each other
    (held against enumeration in tests), a lower bound otherwise.
    """
    members: Ints = 1
    for size, step in zip(sizes, steps, strict=True):
        members = members * np.maximum(1, np.gcd(size * step, domain) // step)
    return members


@dataclass(frozen=True, slots=True)
class RankGrid:
    """``sizes`` per axis and their ``order``, fastest varying first."""

    sizes: Mapping[str, int]
    order: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Number of ranks of the grid."""
        return int(np.prod([self.sizes[axis] for axis in self.order], dtype=np.int64))

    def size(self, axes: Sequence[str]) -> int:
        """Number of members of a group over ``axes``."""
        return int(np.prod([self.sizes[axis] for axis in axes], dtype=np.int64))

    def coordinates(self, rank: int) -> dict[str, int]:
        """Index of a rank along each axis."""
        result = {}
        for axis in self.order:
            rank, result[axis] = divmod(rank, self.sizes[axis])
        return result

    def groups(self, axes: Sequence[str]) -> NDArray[np.int64]:
        """All groups over ``axes``: an array (groups, members), members in the grid's order."""
        slowest_first = tuple(reversed(self.order))
        table = np.arange(self.ranks).reshape([self.sizes[axis] for axis in slowest_first])
        chosen = [i for i, axis in enumerate(slowest_first) if axis in axes]
        others = [i for i, axis in enumerate(slowest_first) if axis not in axes]
        return table.transpose(others + chosen).reshape(-1, self.size(axes))

    def group_of(self, rank: int, axes: Sequence[str]) -> tuple[int, ...]:
        """The ranks that share all other coordinates with ``rank``."""
        coordinates, steps = self.coordinates(rank), strides(self.sizes, self.order)
        members = [rank - sum(coordinates[a] * int(steps[a]) for a in axes)]
        for axis in (a for a in self.order if a in axes):
            members = [m + i * int(steps[axis]) for i in range(self.sizes[axis]) for m in members]
        return tuple(members)

    def in_domain(self, axes: Sequence[str], domain: int) -> int:
        """How many members of a group over ``axes`` share a fast domain of ``domain`` consecutive ranks."""
        steps = strides(self.sizes, self.order)
        return int(members_in_domain([self.sizes[a] for a in axes], [steps[a] for a in axes], domain))


def grid_with(axes: Sequence[str], grid: RankGrid, other: RankGrid) -> RankGrid:
    """Of two meshes over the same ranks the first that has all of these axes."""
    return grid if all(axis in grid.sizes for axis in axes) else other
