"""Model states in equal chunks that move between device and host (PatrickStar; Fang et al., arXiv 2108.05818).

Parameters fill chunks in the order of the model; master copies and moments have chunks of the same elements. No
parameter is cut, so the end of a chunk may stay empty: the size is searched that wastes least, in steps of 2^20
elements from the size of the largest parameter of a layer to twice that. A table of the vocabulary, which is much
larger, takes as many chunks as it needs (in the paper it stays outside). Ranks that share the states own whole chunks;
their number is filled up to a multiple of the ranks, which is waste too.

Gradients take the chunks of their parameters. A pass walks them in the order of its layers and knows which one is
needed last: where memory is short, that one leaves (Belady). Chunks of the optimizer are needed last of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.state_elements import parameter_elements
from meshwright.program.program import Program
from meshwright.units import MIB

STEP = 2**20
"""Elements between two sizes of the search."""
PARAMETER_BYTES = 2
"""An element of the chunks that parameters and gradients share."""


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """Chunks of ``elements`` each, ``count`` of each state on a rank, of which ``used`` elements are states."""

    elements: int
    count: int
    used: int

    @property
    def waste(self) -> float:
        """The part of the chunks that stays empty."""
        return 1 - self.used / (self.elements * self.count)

    @property
    def mib(self) -> float:
        """The size of a chunk of parameters in MiB."""
        return PARAMETER_BYTES * self.elements / MIB


def chunk_layout(program: Program, chunk_mib: float | None) -> ChunkLayout:
    """Return the chunks of a Program's states on one rank; None searches the size."""
    layers, tables = parameter_sizes(program)
    ranks = int(program.parts.only.shape.shard)
    if chunk_mib is not None:
        return packed(layers, tables, int(chunk_mib * MIB) // PARAMETER_BYTES, ranks)
    return min(
        (packed(layers, tables, size, ranks) for size in searched_sizes(layers)),
        key=lambda layout: (layout.elements * layout.count, layout.elements),
    )


def searched_sizes(layers: Sequence[int]) -> list[int]:
    """Return the sizes that are tried, in elements."""
    largest = max(layers)
    return sorted({largest, *(ceil(largest / STEP) * STEP + STEP * n for n in range(largest // STEP + 1))})


def packed(layers: Sequence[int], tables: Sequence[int], size: int, ranks: int) -> ChunkLayout:
    """Return parameters in chunks of a size, one after the other without cuts, and tables in chunks of their own."""
    chunks, left = 0, 0
    for elements in layers:
        if elements > left:
            chunks, left = chunks + ceil(elements / size), ceil(elements / size) * size
        left -= elements
    chunks += sum(ceil(table / size) for table in tables)
    return ChunkLayout(size, ceil(chunks / ranks), ceil((sum(layers) + sum(tables)) / ranks))


def parameter_sizes(program: Program) -> tuple[list[int], list[int]]:
    """Return the elements of each parameter of a rank's layers before sharding, in order, and of its tables."""
    layers, tables = list[int](), dict[str, int]()
    for stage in program.stages_of(0):
        for block in stage.blocks:
            for name, elements, is_table in _parameters(program, block, program.parts.only.shape):
                if is_table:
                    tables[name] = elements  # a table that embedding and head share is one
                else:
                    layers.append(elements)
    return layers, list(tables.values())


def _parameters(program: Program, block: int, shape: LocalShape) -> list[tuple[str, int, bool]]:
    return [
        (p.name, int(parameter_elements(p, shape, expert=op.place == "expert")), p.vocab_dim is not None)
        for op in program.blocks[block].operators
        for p in op.parameters
    ]


def fetches(accesses: Sequence[int], slots: int) -> list[bool]:
    """Return which accesses of a repeated order fetch a chunk, where a device has room for so many.

    The chunk that leaves is the one whose next use is furthest (Belady, 1966), which no other rule betters.
    """
    twice = [*accesses, *accesses]
    following, seen = [inf] * len(twice), dict[int, float]()
    for at in range(len(twice) - 1, -1, -1):
        following[at] = seen.get(twice[at], inf)
        seen[twice[at]] = at
    here, fetched = dict[int, float](), list[bool]()
    for chunk, again in zip(twice, following, strict=True):
        fetched.append(chunk not in here)
        if chunk not in here and len(here) >= slots:
            del here[max(here, key=lambda one: here[one])]
        here[chunk] = again
    return fetched[len(accesses) :]
