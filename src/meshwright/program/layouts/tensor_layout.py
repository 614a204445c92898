"""Layouts: the shard or partial sum of one tensor on each rank of a grid.

Every axis of the grid has a placement of the tensor: Shard(dim), Replicate, or Partial (the tensor is the sum of
what the ranks along the axis hold); the notions are those of OneFlow's SBP (arXiv 2110.15032) and of GSPMD (arXiv
2105.04663). Several axes may cut one dim: the first of them cuts it into pieces in a row, the next one cuts these.

A dim of length L over n ranks is cut into pieces of ⌈L/n⌉, the last ones shorter or empty, as torch's ``chunk`` and
DTensor do. Uneven cuts are sizes c_0 … c_{n−1}: piece i is [⌊L·C_i/C_n⌋, ⌊L·C_{i+1}/C_n⌋) with C the running sum,
which is exact where the sizes add up to L and in proportion where another axis has cut the dim before.
``reshard.py`` turns one layout into another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod

from meshwright.program.layouts.rank_mesh import RankGrid


@dataclass(frozen=True, slots=True)
class Shard:
    """The axis cuts ``dim``; ``cuts`` are the sizes of its pieces, None for even ones."""

    dim: int
    cuts: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Replicate:
    """All ranks along the axis hold the same."""


@dataclass(frozen=True, slots=True)
class Partial:
    """The ranks along the axis hold summands."""


Placement = Shard | Replicate | Partial
Interval = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Placements per axis, in the order in which the axes cut; axes that are left out replicate."""

    grid: RankGrid
    placements: Mapping[str, Placement]

    def __post_init__(self) -> None:
        for axis, placement in self.placements.items():
            assert axis in self.grid.sizes, f"the grid has no axis {axis}"
            if isinstance(placement, Shard) and placement.cuts is not None:
                assert len(placement.cuts) == self.grid.sizes[axis], f"one cut for each rank along {axis}"
                assert min(placement.cuts) >= 0, "cuts are sizes"
                assert sum(placement.cuts) > 0, "cuts leave nothing"

    def placement(self, axis: str) -> Placement:
        """Return the placement of an axis."""
        return self.placements.get(axis, Replicate())

    def cutters(self, dim: int) -> tuple[tuple[str, Shard], ...]:
        """Return the axes that cut a dim, outermost first."""
        return tuple((a, p) for a, p in self.placements.items() if isinstance(p, Shard) and p.dim == dim)

    @property
    def partial_axes(self) -> tuple[str, ...]:
        """Axes along which the tensor is a sum."""
        return tuple(axis for axis, placement in self.placements.items() if isinstance(placement, Partial))

    @property
    def copies(self) -> int:
        """Ranks that hold each piece, or a summand of it."""
        return prod(
            size for axis, size in self.grid.sizes.items() if not isinstance(self.placement(axis), Shard)
        )

    def moved(self, axis: str, placement: Placement) -> "Layout":
        """Return the layout with a new placement of one axis, as the innermost cutter of its dim."""
        rest = {a: p for a, p in self.placements.items() if a != axis}
        return Layout(self.grid, {**rest, axis: placement})

    def local_slice(self, rank: int, shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the part of the tensor that a rank holds."""
        place = self.grid.coordinates(rank)
        return tuple(slice(*self._interval(dim, length, place)) for dim, length in enumerate(shape))

    def local_shape(self, rank: int, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a rank's part of the tensor."""
        return tuple(part.stop - part.start for part in self.local_slice(rank, shape))

    def pieces(self, dim: int, length: int) -> list[Interval]:
        """Every piece of a dim, the innermost cutter's index varying fastest."""
        axes = [axis for axis, _ in self.cutters(dim)]
        return [
            self._interval(dim, length, dict(zip(axes, place, strict=True)))
            for place in product(*(range(self.grid.sizes[axis]) for axis in axes))
        ]

    def largest_local(self, shape: Sequence[int]) -> int:
        """Elements of the rank that holds most."""
        return prod(
            max(stop - start for start, stop in self.pieces(dim, length)) for dim, length in enumerate(shape)
        )

    def _interval(self, dim: int, length: int, place: Mapping[str, int]) -> Interval:
        start, stop = 0, length
        for axis, shard in self.cutters(dim):
            bounds = boundaries(stop - start, self.grid.sizes[axis], shard.cuts)
            index = place[axis]
            start, stop = start + bounds[index], start + bounds[index + 1]
        return start, stop


def boundaries(length: int, parts: int, cuts: tuple[int, ...] | None) -> tuple[int, ...]:
    """Where the pieces of an interval begin, and its end."""
    if cuts is None:
        step = -(-length // parts)
        return tuple(min(i * step, length) for i in range(parts + 1))
    whole = sum(cuts)
    return (0, *(length * done // whole for done in accumulate(cuts)))


def overlaps(ones: Sequence[Interval], others: Sequence[Interval]) -> Iterator[int]:
    """Lengths that intervals share, pair by pair."""
    for (start, stop), (other_start, other_stop) in zip(ones, others, strict=True):
        yield max(0, min(stop, other_stop) - max(start, other_start))
