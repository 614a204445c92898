"""Assign sequences and positions of a step's batch to ranks. Pure.

Data-parallel replicas take consecutive sequences, with dp_replicate outermost. The cp ranks of a replica share its
sequences and hold different positions of each.
"""

from collections.abc import Iterator

from meshwright.program.context_parallel.positions_and_masks import rank_stretches
from meshwright.program.program import Program


def sequence_indices(program: Program, rank: int) -> Iterator[range]:
    """Yield, for each micro-batch of a rank, the indices of its sequences in the step's batch."""
    place, size = program.grid.coordinates(rank), int(program.shape.micro_batch)
    replica = place["dp_replicate"] * program.grid.sizes["dp_shard"] + place["dp_shard"]
    first = replica * size * program.micro_batches
    for m in range(program.micro_batches):
        yield range(first + m * size, first + (m + 1) * size)


def rank_positions(program: Program, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds after the context-parallel split, in its local order."""
    shape = program.shape
    place = program.grid.coordinates(rank)["cp"]
    held = rank_stretches(
        int(shape.seq_len), int(shape.cp), int(shape.ulysses), program.mode.context.pieces, place
    )
    return [position for start, stop in held for position in range(start, stop)]


def sequence_parallel_positions(program: Program, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds outside the tensor-parallel region (sequence parallelism)."""
    held = rank_positions(program, rank)
    cut = int(program.shape.tp) if program.mode.sequence_parallel else 1
    size, part = len(held) // cut, program.grid.coordinates(rank)["tp"] % cut
    return held[part * size : (part + 1) * size]
