"""The vocabulary at the ends of the pipeline: the number of layers of every stage.

The first stage has the embedding, whose lookup takes no time, the last one the head, which takes as long as ``head``
layers. With equal layers everywhere its rank takes longer by the whole head; with layers moved away from it all ranks
are as equal as whole layers can be, until the head alone is more than that.
"""

from collections.abc import Sequence


def layers_of_stages(layers: int, placement: Sequence[int], head: float = 0.0) -> tuple[int, ...]:
    """Layers of every stage such that the busiest rank is as little busy as can be; a stage may have none.

    One by one they go to the least busy rank, there to the least busy stage, of equals the first. No other choice does
    better: when the busiest rank got its last layer, all others were as busy as it was, so that in a choice with less
    for the busiest one none could have more layers than here, and that one would have fewer.
    """
    last = len(placement) - 1
    counts = [0] * len(placement)
    of_stage = [head if stage == last else 0.0 for stage in range(len(placement))]
    of_rank = [head if rank == placement[last] else 0.0 for rank in range(max(placement) + 1)]
    for _ in range(layers):
        stage = min(range(len(placement)), key=lambda s: (of_rank[placement[s]], of_stage[s]))
        counts[stage] += 1
        of_stage[stage] += 1
        of_rank[placement[stage]] += 1
    return tuple(counts)
