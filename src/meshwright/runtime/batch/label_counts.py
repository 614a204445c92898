"""Count the labels of a step by replica: the loss of an island is a mean over its own, and exchanges weigh by them."""

import torch

from meshwright.program.program import Program
from meshwright.program.synchronisation.exchange_weights import DATA_AXES
from meshwright.program.synchronisation.replica_arrivals import late_replicas
from meshwright.runtime.batch.batch_sharding import own_sequences
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED


def labels_by_replica(program: Program, labels: torch.Tensor) -> torch.Tensor | None:
    """Return how many ``labels`` (sequence, position) count, by (dp_replicate, dp_shard).

    None if neither islands nor late replicas need them. Of coded gradients, each replica's own share counts.
    """
    if not program.loose and late_replicas(program) is None:
        return None
    part = program.parts[0]
    by_sequence = (labels != IGNORED).sum(1)
    counts = torch.zeros([part.grid.sizes[axis] for axis in DATA_AXES], dtype=torch.int64)
    others = tuple(axis for axis in part.grid.order if axis not in DATA_AXES)
    for ranks in part.grid.groups(others):
        place = part.grid.coordinates(int(ranks[0]))
        rows = own_sequences(program, part, int(ranks[0]))
        counts[place["dp_replicate"], place["dp_shard"]] = by_sequence[rows].sum()
    return counts


def divisor_of(program: Program, rank: int, labels: torch.Tensor, by_replica: torch.Tensor | None) -> int:
    """Return the number of labels that divides the loss of a rank: of the whole batch, or of its island."""
    if by_replica is None:
        return int((labels != IGNORED).sum())
    place = program.parts[0].grid.coordinates(rank)
    for dim, axis in enumerate(DATA_AXES):
        if axis in program.loose:
            by_replica = by_replica.narrow(dim, place[axis], 1)
    return int(by_replica.sum())
