"""The matrices that Muon takes in a unit's buffer, their owners, and the parts of them in each shard."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from meshwright.model.graph import Block
from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.hidden_matrices import HiddenMatrix, block_matrices, owners
from meshwright.program.rank_units.unit_layout import UnitLayout
from meshwright.stack.stack import Stack

NamedBlocks = Sequence[tuple[str, Block]]
"""Blocks by the names of their places, such as ``layers.3``."""


@dataclass(frozen=True, slots=True)
class LocalMatrix:
    """A matrix as one rank of tensor parallelism holds it: ``shape`` elements from ``start`` of a unit's buffer."""

    name: str
    kind: HiddenMatrix
    start: int
    shape: tuple[int, int]

    @property
    def stop(self) -> int:
        """The end of its elements."""
        return self.start + self.shape[0] * self.shape[1]


class Segment(NamedTuple):
    """Elements start … stop of a flat matrix, by its index, which are in a shard from ``at``."""

    matrix: int
    start: int
    stop: int
    at: int


def local_matrices(blocks: NamedBlocks, layout: UnitLayout, stack: Stack) -> tuple[LocalMatrix, ...]:
    """Return the matrices of a unit, those of one kind together, kinds in the order of the blocks."""
    if not stack.optimizer.kind.of_matrices:
        return ()
    found: dict[HiddenMatrix, list[LocalMatrix]] = {}
    places = layout.places
    for place_name, block in blocks:
        for names, kind in block_matrices(block, stack):
            assert len(names) == 1, f"{names} are one matrix, which the runtime's own stack does not have"
            name = f"{place_name}.{names[0]}"
            if name not in places:
                continue
            place = places[name]
            rows, columns = place.shape[-2:]
            starts = range(place.start, place.stop, rows * columns)
            found.setdefault(kind, []).extend(LocalMatrix(name, kind, at, (rows, columns)) for at in starts)
    return tuple(matrix for of_kind in found.values() for matrix in of_kind)


def with_owners(
    layout: UnitLayout, matrices: Sequence[LocalMatrix], shape: LocalShape, stack: Stack
) -> UnitLayout:
    """Return the layout with every matrix in one part: dealt in turn, the dearest first."""
    if not matrices or layout.parts == 1:
        return layout
    steps, mode = stack.optimizer.steps, stack.optimizer.tensor
    flops = [float(matrix.kind.flops(shape, steps, mode)) for matrix in matrices]
    owned: list[list[tuple[int, int]]] = [[] for _ in range(layout.parts)]
    for matrix, owner in zip(matrices, owners(flops, layout.parts), strict=True):
        owned[owner].append((matrix.start, matrix.stop))
    return replace(layout, owned=tuple(tuple(sorted(intervals)) for intervals in owned))


def segments(layout: UnitLayout, part: int, matrices: Sequence[LocalMatrix]) -> Iterator[Segment]:
    """Yield the parts of matrices in a shard, in the order of the shard."""
    at, ordered = 0, sorted(enumerate(matrices), key=lambda item: item[1].start)
    for start, stop in layout.pieces(part):
        for index, matrix in ordered:
            low, high = max(start, matrix.start), min(stop, matrix.stop)
            if low < high:
                yield Segment(index, low - matrix.start, high - matrix.start, at + low - start)
        at += stop - start


def merged(found: Iterable[Segment]) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a shard that segments take up; adjacent ones are merged."""
    ranges: list[tuple[int, int]] = []
    for segment in found:
        start, stop = segment.at, segment.at + segment.stop - segment.start
        if ranges and ranges[-1][1] == start:
            ranges[-1] = (ranges[-1][0], stop)
        else:
            ranges.append((start, stop))
    return tuple(ranges)
