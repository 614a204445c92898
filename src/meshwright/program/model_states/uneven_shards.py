"""Cut states in uneven shards: each rank of the axes that shard them has elements by its weight.

A rank with weight w of a sum W has ⌊n·w/W⌋ of n elements; what is left goes to the first ranks, one element each. Ranks
of weight 0 have none.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from meshwright.program.local_shape import LocalShape, Number


def shard_bounds(elements: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Return the first element of each rank's shard, and the end."""
    sizes = [elements * weight // sum(weights) for weight in weights]
    having = [rank for rank, weight in enumerate(weights) if weight]
    for rank in having[: elements - sum(sizes)]:
        sizes[rank] += 1
    return (0, *accumulate(sizes))


def largest_shard(elements: Number, shape: LocalShape) -> Number:
    """Return the dense elements of the rank that has most of them.

    Where units are cut together the rest may lie on other ranks, so this is at least the weight's part, rounded up.
    """
    if not shape.state_share:
        return np.ceil(elements / shape.shard)
    weights, count = shape.state_share, int(elements)
    of_rest = max(stop - start for start, stop in pairwise(shard_bounds(count, weights)))
    return max(of_rest, -(-count * max(weights) // sum(weights)))


def largest_over_mean(shape: LocalShape) -> float:
    """Return how many times the mean shard the largest one has: by so much its exchange takes longer."""
    weights = shape.state_share
    return len(weights) * max(weights) / sum(weights) if weights else 1.0
