"""Lay out the parameters of a unit in one flat buffer, and cut it for the ranks that share it. Pure.

A unit is gathered, freed and reduced at once: a block if parameters are gathered layer by layer, a whole stage
otherwise. Its tensors are those of one tp rank, in this order: a table that another stage shares; tensors that tp cuts;
tensors that it does not cut; norms of single heads. So the gradients that are partial sums over tp are one range at the
end.

Without a shared table the buffer of n elements is cut into p pieces of ⌈n/p⌉, the last ones shorter or empty. A shared
table is cut separately, so that both stages own the same parts of it: its longer pieces lie on the first ranks,
those of the rest on the last ones, and no rank holds more than ⌈n/p⌉. Where ranks own whole matrices, each has its own,
and a piece of all else. With weights the pieces have unlike sizes (``program/model_states/uneven_shards.py``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import ceil, prod
from typing import Any, NamedTuple

from meshwright.model.operators.operator_types import LowRank, Operator, Parameter
from meshwright.model.transforms.lora_adapters import stacked_shape
from meshwright.program.layouts.table_transfers import balanced
from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.state_elements import DENSE_MESH, StateMesh, is_partial
from meshwright.program.model_states.uneven_shards import shard_bounds
from meshwright.program.pass_items import Collective

Interval = tuple[int, int]


class Cut(NamedTuple):
    """A rank's range of a tensor along a dim, before padding; or its list of ``rows``."""

    dim: int
    start: int
    stop: int
    rows: tuple[int, ...] | None = None

    def __str__(self) -> str:
        here = f"{self.start}-{self.stop}" if self.rows is None else "+".join(map(str, self.rows))
        return f"{self.dim}:{here}"


class Place(NamedTuple):
    """The range of a parameter in a unit's buffers."""

    start: int
    stop: int
    shape: tuple[int, ...]

    def of(self, buffer: Any) -> Any:
        """Return the parameter's view of a buffer of the unit."""
        return buffer[self.start : self.stop].view(self.shape)


def adjacent(buffer: Any, places: Sequence[Place]) -> Any:
    """Return adjacent matrices of a buffer as one: (sum of outputs, inputs)."""
    return buffer[places[0].start : places[-1].stop].view(-1, places[0].shape[-1])


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter as one rank holds it: its full name, its local shape, and what decides its place.

    ``cuts`` are its part of the whole tensor, none if it is whole; ``widths_cut``: tp, or etp for experts, cuts one of
    its dims. ``storage`` is the type of a frozen one; None: as it is computed with. ``of_each_replica``: the whole
    tensor is that of all data-parallel ranks, stacked along the rank of adapters, and each holds its own part.
    """

    name: str
    shape: tuple[int, ...]
    whole_shape: tuple[int, ...]
    cuts: tuple[Cut, ...]
    widths_cut: bool
    partial: bool
    trained: bool
    storage: str | None = None
    of_each_replica: bool = False

    @property
    def elements(self) -> int:
        """Elements on this rank, padding included."""
        return prod(self.shape)

    @property
    def held_shape(self) -> tuple[int, ...]:
        """The shape of this rank's part without padding."""
        lengths = dict(enumerate(self.shape))
        lengths |= {cut.dim: cut.stop - cut.start for cut in self.cuts if cut.rows is None}
        return tuple(lengths.values())


def vocabulary_part(shape: LocalShape, pipeline_rank: int, tp_rank: int) -> int:
    """Return the index of a rank's part of a vocabulary table: by pipeline rank first if it is spread."""
    return pipeline_rank * int(shape.tp) + tp_rank if shape.vocabulary > 1 else tp_rank


def local_tensor(
    name: str,
    parameter: Parameter,
    op: Operator,
    shape: LocalShape,
    place: Mapping[str, int],
    experts: Sequence[int] | None = None,
) -> Tensor:
    """Return a rank's part of a parameter; ``place`` is its index along pp, tp, ep and etp.

    Dims are cut evenly, with the vocabulary padded first; ``experts`` is their order, if they have one.
    """
    sizes, cuts = list(parameter.shape), []
    for dim, padded, ranks, part in _cut_dims(parameter, op, shape, place):
        length, sizes[dim] = sizes[dim], ceil(padded / ranks)
        start, stop = min(length, part * sizes[dim]), min(length, (part + 1) * sizes[dim])
        rows = tuple(experts[start:stop]) if experts and dim == parameter.ep_dim else None
        cuts.append(Cut(dim, start, stop, rows))
    return Tensor(
        name,
        tuple(sizes),
        parameter.shape,
        tuple(cuts),
        widths_cut=parameter.tp_dim is not None,
        partial=is_partial(parameter, op),
        trained=parameter.trained,
        storage=parameter.storage,
    )


def part_of_stack(tensor: Tensor, parameter: Parameter, op: LowRank, replica: int, replicas: int) -> Tensor:
    """Return the A or B of a data-parallel rank as its part of those of all ranks, stacked along their rank."""
    dim = len(parameter.shape) + op.rank_dim(parameter.name)
    own = Cut(dim, replica * op.rank, (replica + 1) * op.rank)
    whole = stacked_shape(op, parameter, replicas)
    return replace(tensor, whole_shape=whole, cuts=(own, *tensor.cuts), of_each_replica=True)


def _cut_dims(
    parameter: Parameter, op: Operator, shape: LocalShape, place: Mapping[str, int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield every dim that is cut: (dim, padded length, number of ranks, this rank's index)."""
    if parameter.ep_dim is not None:
        yield parameter.ep_dim, parameter.shape[parameter.ep_dim], int(shape.ep), place["ep"]
    dim = parameter.tp_dim
    if dim is None:
        return
    length = parameter.shape[dim]
    if dim == parameter.vocab_dim:
        part = vocabulary_part(shape, place["pp"], place["tp"])
        yield dim, int(shape.padded_vocab(length)), int(shape.vocabulary_cut), part
    elif op.place == "expert":
        yield dim, length, int(shape.etp), place["etp"]
    else:
        yield dim, length, int(shape.tp), place["tp"]


@dataclass(frozen=True)
class UnitLayout:
    """``tensors`` in the order of the buffer; the first ``shared`` elements are a table of two stages.

    ``mesh`` gives the axes along which its parts and copies lie. ``owned`` are, for each part, the intervals of the
    matrices that it owns whole; none if no part does. ``weights`` are those of the parts; none if all are equal.
    """

    tensors: tuple[Tensor, ...]
    shared: int
    parts: int
    mesh: StateMesh = DENSE_MESH
    owned: tuple[tuple[Interval, ...], ...] = ()
    weights: tuple[int, ...] = ()

    @property
    def starts(self) -> dict[str, int]:
        """The start of each tensor."""
        ends = accumulate(t.elements for t in self.tensors)
        return {t.name: end - t.elements for t, end in zip(self.tensors, ends, strict=True)}

    @property
    def places(self) -> dict[str, Place]:
        """The place of each tensor."""
        starts = self.starts
        return {t.name: Place(starts[t.name], starts[t.name] + t.elements, t.shape) for t in self.tensors}

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return sum(t.elements for t in self.tensors)

    @property
    def shard(self) -> int:
        """Elements of the largest shard; the others are padded to it in exchanges."""
        if not self.owned:
            return ceil(self.size / self.parts)
        return max(sum(stop - start for start, stop in pieces) for pieces in self._pieces_with_owned)

    def held(self, part: int) -> int:
        """Return the elements of a rank's shard, padded where all are equal."""
        if not self.weights:
            return self.shard
        ((start, stop),) = self.pieces(part)
        return stop - start

    def row(self, part: int) -> slice:
        """Return the place of a rank's shard among those of all ranks, one after the other."""
        if not self.weights:
            return slice(part * self.shard, (part + 1) * self.shard)
        return slice(*self.pieces(part)[0])

    @property
    def contiguous(self) -> bool:
        """True if the shards, one after the other, are the buffer."""
        return not self.shared and not self.owned

    def pieces(self, part: int) -> tuple[Interval, ...]:
        """Return the intervals of the buffer that a rank owns, in the order of its shard."""
        if self.owned:
            return self._pieces_with_owned[part]
        if self.weights:
            bounds = shard_bounds(self.size, self.weights)
            return ((bounds[part], bounds[part + 1]),)
        if not self.shared:
            step = -(-self.size // self.parts)
            return ((min(part * step, self.size), min((part + 1) * step, self.size)),)
        table = balanced(self.shared, self.parts, first=True)
        rest = balanced(self.size - self.shared, self.parts, first=False)
        return (
            (table[part], table[part + 1]),
            (self.shared + rest[part], self.shared + rest[part + 1]),
        )

    def spans(self, part: int) -> Iterator[tuple[str, slice, slice]]:
        """Yield the parts of parameters in a rank's shard: (name, slice of the flat parameter, slice of the shard)."""
        at, places = 0, self.places
        for start, stop in self.pieces(part):
            for name, place in places.items():
                low, high = max(start, place.start), min(stop, place.stop)
                if low < high:
                    here = at + low - start
                    yield name, slice(low - place.start, high - place.start), slice(here, here + high - low)
            at += stop - start

    @cached_property
    def _pieces_with_owned(self) -> tuple[tuple[Interval, ...], ...]:
        """The intervals of each part: of a shared table, its whole matrices, and its share of all else."""
        table = balanced(self.shared, self.parts, first=True)
        taken = sorted(interval for of_part in self.owned for interval in of_part)
        ends = [self.shared, *(stop for _, stop in taken)]
        rest = list(zip(ends, [*(start for start, _ in taken), self.size], strict=True))
        bounds = balanced(sum(stop - start for start, stop in rest), self.parts, first=False)
        return tuple(
            (
                *(((table[part], table[part + 1]),) if self.shared else ()),
                *self.owned[part],
                *within(rest, bounds[part], bounds[part + 1]),
            )
            for part in range(self.parts)
        )

    def over_own_mesh(self, items: Sequence[Collective]) -> tuple[Collective, ...]:
        """Return the collectives of a stage or block that run over axes of this mesh."""
        return tuple(item for item in items if self.mesh.axes.issuperset(item.axes))

    def summed_range(self, sequence_parallel: bool) -> Interval:
        """Return the range of gradients that are partial sums over tp."""
        partial = [t for t in self.tensors if not t.widths_cut and (sequence_parallel or t.partial)]
        return self.size - sum(t.elements for t in partial), self.size


def unit_layout(
    tensors: Iterable[Tensor], shared: Sequence[str], parts: int, mesh: StateMesh = DENSE_MESH
) -> UnitLayout:
    """Sort tensors into the order of the buffer; ``shared`` names the table that another stage holds too."""
    ordered = sorted(tensors, key=lambda t: _category(t, shared))
    table = sum(t.elements for t in ordered if t.name in shared)
    return UnitLayout(tuple(ordered), table, parts, mesh)


def within(intervals: Sequence[Interval], first: int, last: int) -> list[Interval]:
    """Return the elements first … last of intervals that lie one after the other, as intervals."""
    found, before = [], 0
    for start, stop in intervals:
        low, high = max(start, start + first - before), min(stop, start + last - before)
        found += [(low, high)] if low < high else []
        before += stop - start
    return found


def _category(tensor: Tensor, shared: Sequence[str]) -> int:
    if tensor.name in shared:
        return 0
    if tensor.widths_cut:
        return 1
    return 3 if tensor.partial else 2
