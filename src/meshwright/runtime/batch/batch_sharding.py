"""Assign sequences and positions of a step's batch to ranks. Pure.

Data-parallel replicas take consecutive sequences, with dp_replicate outermost. The cp ranks of a replica share its
sequences and hold different positions of each. Without backward passes each sequence is there twice: on the same rank,
or in both halves of dp_replicate.
"""

from collections.abc import Iterator

from meshwright.program.layouts.activation_transfers import held_between_blocks, held_positions
from meshwright.program.program import Program
from meshwright.program.program_parts import Part


def sequence_indices(program: Program, part: Part, rank: int) -> Iterator[list[int]]:
    """Yield, for each micro-batch of a rank in a part, the indices of its sequences in the step's batch.

    In the part with most replicas these follow one another; a replica of another part has those of several, and so has
    one with a share of the batch.
    """
    optimizer, own, (first, stop) = program.stack.optimizer, program.micro_batches, part.sequences_of(rank)
    if optimizer.splits_perturbations:
        half = part.sequences_together // 2
        first, stop = first % half, first % half + stop - first
    elif optimizer.forward_only:
        own //= 2
    uneven = any(of.batch_share for of in program.parts)
    unit = 1 if uneven else min(int(of.shape.micro_batch) for of in program.parts)
    for m in range(program.micro_batches):
        runs = ((at // unit * own + m % own) * unit + at % unit for at in range(first, stop))
        yield list(runs)


def rank_positions(part: Part, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds after the context-parallel split, in its local order."""
    return [position for stretch in held_positions(part, rank) for position in range(*stretch)]


def sequence_parallel_positions(part: Part, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds outside the tensor-parallel region (sequence parallelism)."""
    held = held_between_blocks(part, rank).positions
    return [position for stretch in held for position in range(*stretch)]
