"""Which sequences of a step's batch are whose: replicas take consecutive ones, outermost dp_replicate. Pure."""

from collections.abc import Iterator

from meshwright.program.program import Program


def rows_of(program: Program, rank: int) -> Iterator[range]:
    """The indices, in the batch of a step, of each micro-batch of a rank."""
    place, size = program.grid.coordinates(rank), int(program.shape.micro_batch)
    replica = place["dp_replicate"] * program.grid.sizes["dp_shard"] + place["dp_shard"]
    first = replica * size * program.micro_batches
    for m in range(program.micro_batches):
        yield range(first + m * size, first + (m + 1) * size)
