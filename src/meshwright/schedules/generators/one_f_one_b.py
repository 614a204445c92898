"""1F1B with flush (PipeDream-Flush, arXiv 2006.09503; Megatron-LM, arXiv 2104.04473, section 2.2.1).

Rank r runs P−1−r forward passes, then forward and backward in turn, then the rest of the backward passes.
Bubble (P−1)/(M+P−1) of the time as GPipe's, but only min(M, P−r) micro-batches in flight.
"""

from meshwright.schedules.action import Action
from meshwright.schedules.pipeline import Pipeline


def one_f_one_b(pipeline: Pipeline) -> list[list[Action]]:
    """One list per rank; V is 1."""
    ranks, micro_batches = pipeline.ranks, pipeline.micro_batches
    return [_rank_list(rank, min(micro_batches, ranks - 1 - rank), micro_batches) for rank in range(ranks)]


def _rank_list(stage: int, warm_up: int, micro_batches: int) -> list[Action]:
    actions = [Action("F", stage, m) for m in range(warm_up)]
    for m in range(warm_up, micro_batches):
        actions += [Action("F", stage, m), Action("B", stage, m - warm_up)]
    return actions + [Action("B", stage, m) for m in range(micro_batches - warm_up, micro_batches)]


def one_f_one_b_in_flight(rank: int, ranks: int, micro_batches: int, chunks: int) -> int:
    """Return the warm-up and one more: min(M, P−r)."""
    return min(micro_batches, ranks - rank)
