"""DualPipe: micro-batches from both ends at once (DeepSeek-V3, arXiv 2412.19437; github.com/deepseek-ai/DualPipe).

Every rank holds two stages, one for each way through the model, so that parameters are held twice. Half of the
micro-batches begin on rank 0, the other half on rank P−1. The halves of the pipeline do the same with the ways
exchanged, and a half is DualPipeV (``dualpipev.py``, which has the order): where that has the two arms of its V, a rank
of DualPipe has its two ways. P and M are even. The bubble is (P/2−1)·(F&B + B − 3W), and what that is for lists is said
there; P + 1 passes of a stage are in flight at most.
"""

from meshwright.schedules.action import Action
from meshwright.schedules.generators.dualpipev import chunk_passes
from meshwright.schedules.pipeline import Pipeline


def dualpipe(pipeline: Pipeline) -> list[list[Action]]:
    """One list per rank; stages 0 to P−1 are the first way, and the first half of the micro-batches goes it.

    Stage P + s has the layers of stage s and lies on rank P−1−s.
    """
    half = pipeline.micro_batches // 2
    return [_rank_list(rank, pipeline.ranks, half) for rank in range(pipeline.ranks)]


def _rank_list(rank: int, ranks: int, half: int) -> list[Action]:
    """Return the list of a rank; the chain that begins at the nearer end is DualPipeV's first chunk."""
    stages = (rank, 2 * ranks - 1 - rank)
    second_is_nearer = rank >= ranks // 2
    actions = []
    for kind, chunk, number in chunk_passes(min(rank, ranks - 1 - rank), ranks // 2, half):
        way = chunk ^ second_is_nearer
        actions.append(Action(kind, stages[way], number + way * half))
    return actions
