"""Assign sequences and positions of a step's batch to ranks. Pure.

Data-parallel replicas take consecutive sequences, with dp_replicate outermost. The cp ranks of a replica share its
sequences and hold different positions of each. Without backward passes each sequence is there twice: on the same rank,
or in both halves of dp_replicate.
"""

from collections.abc import Iterator

from meshwright.program.context_parallel.positions_and_masks import rank_stretches
from meshwright.program.program import Program
from meshwright.program.program_parts import Part


def sequence_indices(program: Program, part: Part, rank: int) -> Iterator[range]:
    """Yield, for each micro-batch of a rank, the indices of its sequences in the step's batch."""
    place, size = part.grid.coordinates(rank), int(part.shape.micro_batch)
    optimizer, own, outer = program.stack.optimizer, program.micro_batches, place["dp_replicate"]
    if optimizer.splits_perturbations:
        outer %= part.grid.sizes["dp_replicate"] // 2
    elif optimizer.forward_only:
        own //= 2
    first = (outer * part.grid.sizes["dp_shard"] + place["dp_shard"]) * size * own
    for m in range(program.micro_batches):
        yield range(first + m % own * size, first + (m % own + 1) * size)


def rank_positions(part: Part, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds after the context-parallel split, in its local order."""
    shape, place = part.shape, part.grid.coordinates(rank)["cp"]
    held = rank_stretches(
        int(shape.seq_len), int(shape.cp), int(shape.ulysses), part.mode.context.pieces, place
    )
    return [position for start, stop in held for position in range(start, stop)]


def sequence_parallel_positions(part: Part, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds outside the tensor-parallel region (sequence parallelism)."""
    held = rank_positions(part, rank)
    cut = int(part.shape.tp) if part.mode.sequence_parallel else 1
    size, piece = len(held) // cut, part.grid.coordinates(rank)["tp"] % cut
    return held[piece * size : (piece + 1) * size]
