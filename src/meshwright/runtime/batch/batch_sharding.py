"""Assign sequences and positions of a step's batch to ranks. Pure.

Data-parallel replicas take consecutive sequences, with dp_replicate outermost. The cp ranks of a replica share its
sequences and hold different positions of each. Without backward passes each sequence is there twice: on the same rank,
or in both halves of dp_replicate.
"""

from collections.abc import Iterator

from meshwright.program.context_parallel.positions_and_masks import rank_stretches
from meshwright.program.program import Program


def sequence_indices(program: Program, rank: int) -> Iterator[range]:
    """Yield, for each micro-batch of a rank, the indices of its sequences in the step's batch."""
    place, size = program.grid.coordinates(rank), int(program.shape.micro_batch)
    optimizer, own, outer = program.stack.optimizer, program.micro_batches, place["dp_replicate"]
    if optimizer.splits_perturbations:
        outer %= program.grid.sizes["dp_replicate"] // 2
    elif optimizer.forward_only:
        own //= 2
    first = (outer * program.grid.sizes["dp_shard"] + place["dp_shard"]) * size * own
    for m in range(program.micro_batches):
        yield range(first + m % own * size, first + (m % own + 1) * size)


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
