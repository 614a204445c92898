"""Device mesh: ranks on a grid of named axes, and the process groups of one or several axes.

Axes are listed from fastest to slowest varying: with ``order = (tp, pp)`` rank = tp_index + tp·pp_index. The
attention mesh and the experts' mesh are two grids over the same ranks. Group sizes, strides and the number of
members that share a fast domain are plain arithmetic and accept numpy arrays, so that closed forms over arrays of
plans and the lowering of one plan use the same lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """Return the members of a group over the given axes that share one domain of ``domain`` ranks.

    Per axis of size n and stride t: gcd(n·t, D) / t, at least 1: n where the axis fits, D/t where it runs
    over, and the worst-placed group's count where sizes do not divide. Exact when sizes divide each other
    (held against enumeration in tests), a lower bound otherwise.
    """
    members: Ints = 1
    for size, step in zip(sizes, steps, strict=True):
        members = members * np.maximum(1, np.gcd(size * step, domain) // step)
    return members


def together(size: Ints, step: Ints, domain: Ints) -> Ints:
    """Into runs of how many an axis is cut so that each run is in one domain and all are equally long."""
    return np.gcd(size, members_in_domain([size], [step], domain))


@dataclass(frozen=True, slots=True)
class RankGrid:
    """``sizes`` per axis and their ``order``, fastest varying first.

    ``parts`` cuts an axis into axes of its own, the fastest first: groups may be over these, too.
    """

    sizes: Mapping[str, int]
    order: tuple[str, ...]
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def has(self, axes: Sequence[str]) -> bool:
        """Return true if the grid has all of some axes, its own or parts of them."""
        present = {*self.sizes, *(part for parts in self.parts.values() for part in parts)}
        return present.issuperset(axes)

    def _refined(self, axes: Sequence[str]) -> "tuple[RankGrid, tuple[str, ...]]":
        """Return a grid whose order names all of ``axes``, and their names in it."""
        if all(axis in self.sizes for axis in axes):
            return self, tuple(axes)
        sizes = {axis: size for axis, size in self.sizes.items() if axis not in self.parts}
        sizes |= {name: size for parts in self.parts.values() for name, size in parts.items()}
        order = tuple(name for axis in self.order for name in self.parts.get(axis, (axis,)))
        named = tuple(name for axis in axes for name in self.parts.get(axis, (axis,)))
        return RankGrid(sizes, order), named

    @property
    def ranks(self) -> int:
        """Number of ranks of the grid."""
        return int(np.prod([self.sizes[axis] for axis in self.order], dtype=np.int64))

    def size(self, axes: Sequence[str]) -> int:
        """Return the number of members of a group over ``axes``."""
        grid, axes = self._refined(axes)
        return int(np.prod([grid.sizes[axis] for axis in axes], dtype=np.int64))

    def coordinates(self, rank: int) -> dict[str, int]:
        """Index of a rank along each axis."""
        result = {}
        for axis in self.order:
            rank, result[axis] = divmod(rank, self.sizes[axis])
        return result

    def groups(self, axes: Sequence[str]) -> NDArray[np.int64]:
        """All groups over ``axes``: an array (groups, members), members in the grid's order."""
        grid, axes = self._refined(axes)
        slowest_first = tuple(reversed(grid.order))
        table = np.arange(self.ranks).reshape([grid.sizes[axis] for axis in slowest_first])
        chosen = [i for i, axis in enumerate(slowest_first) if axis in axes]
        others = [i for i, axis in enumerate(slowest_first) if axis not in axes]
        return table.transpose(others + chosen).reshape(-1, self.size(axes))

    def group_of(self, rank: int, axes: Sequence[str]) -> tuple[int, ...]:
        """Return the ranks that share all other coordinates with ``rank``."""
        grid, axes = self._refined(axes)
        coordinates, steps = grid.coordinates(rank), strides(grid.sizes, grid.order)
        members = [rank - sum(coordinates[a] * int(steps[a]) for a in axes)]
        for axis in (a for a in grid.order if a in axes):
            members = [m + i * int(steps[axis]) for i in range(grid.sizes[axis]) for m in members]
        return tuple(members)


def grid_with(axes: Sequence[str], grid: RankGrid, other: RankGrid) -> RankGrid:
    """Of two meshes over the same ranks the first that has all of these axes."""
    return grid if grid.has(axes) else other
