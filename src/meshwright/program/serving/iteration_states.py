"""The state table of a serving replica: weights in their formats, and the caches of running sequences.

A row has the bytes of one layer on the rank that holds most. Weights that a format packs may end between two bytes:
each row is rounded up.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from meshwright.model.graph import Block, ModelGraph
from meshwright.program.model_states.state_elements import StateEntry, StateKind, embedding_names
from meshwright.program.program import Stage
from meshwright.program.serving.cache_layout import CacheLayout, cache_layouts
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.program.serving.weight_bytes import operator_elements

Caches = Mapping[int, int]
"""The sequences whose caches a rank of attention_dp has: how many of them, by their tokens."""
Row = tuple[str, StateKind, int, int, tuple[str, ...]]
"""Name, kind, elements and bytes of one layer on a rank, and the axes that cut it."""
WEIGHT_CLASSES: tuple[tuple[str, bool, tuple[str, ...]], ...] = (
    ("", False, ("tp",)),
    (".experts", True, ("ep", "etp")),
)


def replica_states(
    model: ModelGraph,
    stages: Sequence[Stage],
    degrees: ReplicaDegrees,
    formats: StorageFormats,
    caches: Caches,
    block_tokens: int,
) -> tuple[StateEntry, ...]:
    """Return the rows of every stage of a replica."""
    found: list[StateEntry] = []
    for stage in stages:
        for index in dict.fromkeys(stage.blocks):
            block = model.blocks[index]
            tied = block.kind == "head" and len(stages) == 1
            left_out = embedding_names(model.blocks) if tied else frozenset[str]()
            rows = (
                *_weights(block, model, degrees, formats, left_out),
                *_caches(block, degrees, formats, caches, block_tokens),
            )
            layers = tuple(at for at in stage.layers if model.layer_blocks[at] == index)
            found += [_entry(row, stage, stage.blocks.count(index), layers) for row in rows if row[3]]
    return tuple(found)


def _entry(row: Row, stage: Stage, repeat: int, layers: tuple[int, ...]) -> StateEntry:
    name, kind, elements, size, axes = row
    return StateEntry(
        name=name,
        kind=kind,
        stage=stage.index,
        repeat=repeat,
        elements=elements,
        bytes_per_element=0,
        layout=axes,
        layers=layers,
        packed_bytes=size,
    )


def _weights(
    block: Block,
    model: ModelGraph,
    degrees: ReplicaDegrees,
    formats: StorageFormats,
    left_out: frozenset[str],
) -> Iterator[Row]:
    for suffix, of_experts, axes in WEIGHT_CLASSES:
        elements, bits = 0, 0.0
        for op in block.operators:
            if (op.place == "expert") == of_experts:
                own = int(operator_elements(op, degrees, left_out))
                elements += own
                bits += own * formats.bits(op, model.architecture)
        yield block.name + suffix, "parameter", elements, ceil(bits / 8), axes


def _caches(
    block: Block, degrees: ReplicaDegrees, formats: StorageFormats, caches: Caches, block_tokens: int
) -> Iterator[Row]:
    for op in block.operators:
        every = [
            (layout, sequences)
            for tokens, sequences in caches.items()
            for layout in cache_layouts(op, tokens, degrees, formats, block_tokens)
        ]
        for axes in dict.fromkeys(layout.axes for layout, _ in every):
            own = [(layout, sequences) for layout, sequences in every if layout.axes == axes]
            elements = sum(sequences * _units(layout) for layout, sequences in own)
            size = sum(sequences * layout.largest_bytes for layout, sequences in own)
            yield f"{block.name}.{op.name}.{'-'.join(axes)}", "cache", elements, ceil(size), axes


def _units(layout: CacheLayout) -> int:
    """Return the heads of tokens on the rank that has most."""
    return len(layout.heads_of(0)) * len(layout.blocks_of(0)) * layout.block_tokens
