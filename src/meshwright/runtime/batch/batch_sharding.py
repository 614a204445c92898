"""Assign sequences and positions of a step's batch to ranks. Pure.

Data-parallel replicas take consecutive sequences, with dp_replicate outermost. The cp ranks of a replica share its
sequences and hold different positions of each. Without backward passes each sequence is there twice: on the same rank,
or in both halves of dp_replicate. Where gradients are coded, a rank has those of several replicas, share by share.
"""

from collections.abc import Iterator
from typing import NamedTuple

from meshwright.program.layouts.activation_transfers import held_between_blocks, held_positions
from meshwright.program.program import Program
from meshwright.program.program_parts import Part
from meshwright.program.synchronisation.replica_arrivals import late_replicas


def sequence_indices(program: Program, part: Part, rank: int) -> Iterator[list[int]]:
    """Yield, for each micro-batch of a rank in a part, the indices of its sequences in the step's batch.

    In the part with most replicas these follow one another; a replica of another part has those of several, and so has
    one with a share of the batch.
    """
    optimizer, (first, stop) = program.stack.optimizer, part.sequences_of(rank)
    shares = replica_shares(program, part, rank)
    own = program.micro_batches // len(shares)
    if optimizer.splits_perturbations:
        half = part.sequences_together // 2
        first, stop = first % half, first % half + stop - first
    elif optimizer.forward_only:
        own //= 2
    uneven = any(of.batch_share for of in program.parts)
    unit = 1 if uneven else min(int(of.shape.micro_batch) for of in program.parts)
    for m in range(program.micro_batches):
        moved = shares[m // own % len(shares)].moved
        places = range(first + moved, stop + moved)
        yield [(at // unit * own + m % own) * unit + at % unit for at in places]


def own_sequences(program: Program, part: Part, rank: int) -> list[int]:
    """Return the sequences of a rank's own place in the batch, whatever other shares it computes too."""
    shares = [share.moved for share in replica_shares(program, part, rank)]
    each = program.micro_batches // len(shares)
    found = list(sequence_indices(program, part, rank))[shares.index(0) * each :]
    return [row for rows in found[:each] for row in rows]


class ReplicaShare(NamedTuple):
    """A share of the batch that a rank computes: its sequences are so many places behind the rank's own ones.

    Its loss is multiplied by ``factor``.
    """

    moved: int
    factor: float


def replica_shares(program: Program, part: Part, rank: int) -> list[ReplicaShare]:
    """Return the shares of the batch that a rank computes one after the other: one, unless gradients are coded."""
    late = late_replicas(program)
    if late is None or late.code is None:
        return [ReplicaShare(0, 1.0)]
    own, apart = part.grid.coordinates(rank)[late.said.axis], int(part.shape.micro_batch)
    apart *= part.grid.sizes["dp_shard"] if late.said.axis == "dp_replicate" else 1
    factors = late.code.coefficients(own)
    return [
        ReplicaShare((share - own) * apart, factor)
        for share, factor in zip(late.code.shares_of(own), factors, strict=True)
    ]


def rank_positions(part: Part, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds after the context-parallel split, in its local order."""
    return [position for stretch in held_positions(part, rank) for position in range(*stretch)]


def sequence_parallel_positions(part: Part, rank: int) -> list[int]:
    """Return the sequence positions that a rank holds outside the tensor-parallel region (sequence parallelism)."""
    held = held_between_blocks(part, rank).positions
    return [position for stretch in held for position in range(*stretch)]
