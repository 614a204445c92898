"""GPipe (Huang et al., arXiv 1811.06965): all forward passes, then all backward passes.

Bubble (P−1)/(M+P−1) of the time; every micro-batch is in flight at the peak.
"""

from meshwright.schedule.action import Action


def gpipe(ranks: int, micro_batches: int, chunks: int) -> list[list[Action]]:
    """One list per rank; ``chunks`` is 1."""
    return [
        [Action("F", rank, m) for m in range(micro_batches)]
        + [Action("B", rank, m) for m in range(micro_batches)]
        for rank in range(ranks)
    ]


def gpipe_in_flight(rank: int, ranks: int, micro_batches: int, chunks: int) -> int:
    """All of them."""
    return micro_batches
