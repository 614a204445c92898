"""GPipe (Huang et al., arXiv 1811.06965): all forward passes, then all backward passes.

Bubble (P−1)/(M+P−1) of the time; every micro-batch is in flight at the peak.
"""

from meshwright.schedules.action import Action
from meshwright.schedules.pipeline import Pipeline


def gpipe(pipeline: Pipeline) -> list[list[Action]]:
    """One list per rank; V is 1."""
    numbers = range(pipeline.micro_batches)
    return [
        [Action("F", rank, m) for m in numbers] + [Action("B", rank, m) for m in numbers]
        for rank in range(pipeline.ranks)
    ]


def gpipe_in_flight(rank: int, ranks: int, micro_batches: int, chunks: int) -> int:
    """All of them."""
    return micro_batches
