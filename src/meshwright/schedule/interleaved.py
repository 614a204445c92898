"""Interleaved 1F1B (Megatron-LM, arXiv 2104.04473, section 2.2.2): V chunks per rank, groups of P micro-batches.

The k-th forward pass of a rank is chunk (k mod PV) div P of micro-batch (k div PV)·P + k mod P; backward
passes take the chunks in reverse. Rank r warms up with 2(P−1−r) + (V−1)P forward passes. Bubble (P−1)/(V·M)
relative to the ideal time; M must be a multiple of P.
"""

from meshwright.schedule.action import Action


def interleaved(ranks: int, micro_batches: int, chunks: int) -> list[list[Action]]:
    """One list per rank; rank r holds stages r, r + P, …, r + (V−1)P."""
    total = micro_batches * chunks
    lists = []
    for rank in range(ranks):
        warm_up = warm_up_passes(rank, ranks, micro_batches, chunks)
        forward = [_pass("F", k, rank, ranks, chunks) for k in range(total)]
        backward = [_pass("B", k, rank, ranks, chunks) for k in range(total)]
        steady = [action for pair in zip(forward[warm_up:], backward, strict=False) for action in pair]
        lists.append(forward[:warm_up] + steady + backward[total - warm_up :])
    return lists


def warm_up_passes(rank: int, ranks: int, micro_batches: int, chunks: int) -> int:
    """Forward passes of a rank before its first backward pass, the one just before it not counted."""
    return min(micro_batches * chunks, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks)


def interleaved_in_flight(rank: int, ranks: int, micro_batches: int, chunks: int) -> int:
    """The warm-up and one more pass of a chunk."""
    return min(micro_batches * chunks, warm_up_passes(rank, ranks, micro_batches, chunks) + 1)


def _pass(kind: str, k: int, rank: int, ranks: int, chunks: int) -> Action:
    chunk = k % (ranks * chunks) // ranks
    micro_batch = k // (ranks * chunks) * ranks + k % ranks
    if kind == "F":
        return Action("F", chunk * ranks + rank, micro_batch)
    return Action("B", (chunks - 1 - chunk) * ranks + rank, micro_batch)
