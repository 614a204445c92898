"""Which sequences of a step's batch are whose, and which of their positions. Pure.

Replicas take consecutive sequences, outermost dp_replicate; the ranks of cp have parts of the same ones.
"""

from collections.abc import Iterator

from meshwright.program.context import rank_stretches
from meshwright.program.program import Program


def rows_of(program: Program, rank: int) -> Iterator[range]:
    """The indices, in the batch of a step, of each micro-batch of a rank."""
    place, size = program.grid.coordinates(rank), int(program.shape.micro_batch)
    replica = place["dp_replicate"] * program.grid.sizes["dp_shard"] + place["dp_shard"]
    first = replica * size * program.micro_batches
    for m in range(program.micro_batches):
        yield range(first + m * size, first + (m + 1) * size)


def positions_of(program: Program, rank: int) -> list[int]:
    """The positions of every sequence that a rank has, in its order."""
    shape = program.shape
    place = program.grid.coordinates(rank)["cp"]
    held = rank_stretches(
        int(shape.seq_len), int(shape.cp), int(shape.ulysses), program.mode.context.pieces, place
    )
    return [position for start, stop in held for position in range(start, stop)]


def places_of(program: Program, rank: int) -> list[int]:
    """The positions of every sequence that are a rank's outside of the tensor region."""
    held = positions_of(program, rank)
    cut = int(program.shape.tp) if program.mode.sequence_parallel else 1
    size, part = len(held) // cut, program.grid.coordinates(rank)["tp"] % cut
    return held[part * size : (part + 1) * size]
