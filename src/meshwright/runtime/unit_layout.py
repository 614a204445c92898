"""How the parameters of a unit lie in its one flat buffer, and how the ranks that share it cut that buffer. Pure.

A unit is what is gathered, freed and reduced at once: a block where parameters are gathered layer by layer, a whole
stage otherwise. Its tensors are those of one tp rank, in this order: a table that another stage shares; what tp cuts;
what it does not cut; norms of single heads. So the gradients that are partial sums over tp are one range at the end.

Without a shared table the buffer of n elements is cut into p pieces of ⌈n/p⌉, the last ones shorter or empty. A shared
table is cut apart from the rest, so that both stages own the same of it: its longer pieces lie with the first ranks,
those of the rest with the last ones, and no rank holds more than ⌈n/p⌉.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, prod
from typing import NamedTuple

from meshwright.model.operators import Operator, Parameter
from meshwright.program.items import Collective
from meshwright.program.layout import boundaries
from meshwright.program.shape import LocalShape
from meshwright.program.states import DENSE_MESH, StateMesh, is_partial

Interval = tuple[int, int]


class Cut(NamedTuple):
    """Where a rank's part of a tensor begins and ends along a dim, before padding; or which ``rows`` it is."""

    dim: int
    start: int
    stop: int
    rows: tuple[int, ...] | None = None

    def __str__(self) -> str:
        here = f"{self.start}-{self.stop}" if self.rows is None else "+".join(map(str, self.rows))
        return f"{self.dim}:{here}"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter as one rank holds it: its full name, its local shape, and what decides its place.

    ``cuts`` say which part of the whole tensor that is, none where all of it; ``widths_cut``: tp, or etp for experts,
    cuts one of its dims.
    """

    name: str
    shape: tuple[int, ...]
    whole_shape: tuple[int, ...]
    cuts: tuple[Cut, ...]
    widths_cut: bool
    partial: bool
    trained: bool

    @property
    def elements(self) -> int:
        """Elements on this rank, padding included."""
        return prod(self.shape)


def vocabulary_part(shape: LocalShape, pipeline_rank: int, tp_rank: int) -> int:
    """Which of the equal parts of a table of the vocabulary a rank has: pipeline ranks first, where it is spread."""
    return pipeline_rank * int(shape.tp) + tp_rank if shape.vocabulary > 1 else tp_rank


def local_tensor(
    name: str,
    parameter: Parameter,
    op: Operator,
    shape: LocalShape,
    place: Mapping[str, int],
    experts: Sequence[int] | None = None,
) -> Tensor:
    """What a rank at a ``place`` (its index along pp, tp, ep and etp) holds of a parameter.

    Even pieces of the dims that are cut, the vocabulary padded first; of ``experts`` where they have an order.
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
    )


def _cut_dims(
    parameter: Parameter, op: Operator, shape: LocalShape, place: Mapping[str, int]
) -> Iterator[tuple[int, int, int, int]]:
    """Every dim that is cut: its padded length, over how many ranks, which of them this one is."""
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
    """``tensors`` in the order of the buffer; ``shared`` elements at its front are a table of two stages.

    ``mesh`` says along which axes its parts and copies lie.
    """

    tensors: tuple[Tensor, ...]
    shared: int
    parts: int
    mesh: StateMesh = DENSE_MESH

    @property
    def starts(self) -> dict[str, int]:
        """Where each tensor begins."""
        ends = accumulate(t.elements for t in self.tensors)
        return {t.name: end - t.elements for t, end in zip(self.tensors, ends, strict=True)}

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return sum(t.elements for t in self.tensors)

    @property
    def shard(self) -> int:
        """Elements of the largest piece; the others are padded to it where they are exchanged."""
        return ceil(self.size / self.parts)

    def pieces(self, part: int) -> tuple[Interval, ...]:
        """The intervals of the buffer that a rank owns, in the order in which its shard holds them."""
        if not self.shared:
            bounds = boundaries(self.size, self.parts, None)
            return ((bounds[part], bounds[part + 1]),)
        table = balanced(self.shared, self.parts, first=True)
        rest = balanced(self.size - self.shared, self.parts, first=False)
        return (
            (table[part], table[part + 1]),
            (self.shared + rest[part], self.shared + rest[part + 1]),
        )

    def own(self, items: Sequence[Collective]) -> tuple[Collective, ...]:
        """Those of a stage's or block's collectives that are over axes of this mesh."""
        return tuple(item for item in items if self.mesh.axes.issuperset(item.axes))

    def summed_range(self, sequence_parallel: bool) -> Interval:
        """The range of gradients that are partial sums over tp."""
        partial = [t for t in self.tensors if not t.widths_cut and (sequence_parallel or t.partial)]
        return self.size - sum(t.elements for t in partial), self.size


def unit_layout(
    tensors: Iterable[Tensor], shared: Sequence[str], parts: int, mesh: StateMesh = DENSE_MESH
) -> UnitLayout:
    """Put tensors in the order of the buffer; ``shared`` names the table that another stage has too."""
    ordered = sorted(tensors, key=lambda t: _category(t, shared))
    table = sum(t.elements for t in ordered if t.name in shared)
    return UnitLayout(tuple(ordered), table, parts, mesh)


def _category(tensor: Tensor, shared: Sequence[str]) -> int:
    if tensor.name in shared:
        return 0
    if tensor.widths_cut:
        return 1
    return 3 if tensor.partial else 2


def balanced(length: int, parts: int, *, first: bool) -> tuple[int, ...]:
    """Bounds of pieces that differ by one element at most, the longer ones first or last."""
    size, longer = divmod(length, parts)
    long = range(longer) if first else range(parts - longer, parts)
    return (0, *accumulate(size + (part in long) for part in range(parts)))
