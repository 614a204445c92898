"""Interleaved 1F1B (Megatron-LM, arXiv 2104.04473, section 2.2.2): V chunks per rank, units of N micro-batches.

A unit's micro-batches go forward through the rank's first chunk, then the second, and so on, then the next unit's do;
backward passes take the chunks in reverse. Rank r warms up with 2(P−1−r) + (V−1)N forward passes, then forward and
backward take turns. Bubble (P−1)/(V·M) relative to the ideal time. N is P if the plan does not say; a larger one lets
messages between chunks hide behind more passes and holds (V−1)(N−P) chunks more.

Rules as Megatron-Core has them for ``microbatch_group_size_per_vp_stage`` (``pipeline_parallel/schedules.py``,
``get_schedule_table`` and the checks before it): P ≤ N ≤ M, and what is left of M behind full units is nothing, or P
micro-batches at least.
"""

from meshwright.schedules.action import Action
from meshwright.schedules.micro_batch_units import units
from meshwright.schedules.pipeline import Pipeline


def interleaved(pipeline: Pipeline) -> list[list[Action]]:
    """One list per rank; rank r holds stages r, r + P, …, r + (V−1)P."""
    ranks, micro_batches, chunks = pipeline.ranks, pipeline.micro_batches, pipeline.chunks
    unit = pipeline.unit
    turns = [(chunk, m) for group in units(micro_batches, unit) for chunk in range(chunks) for m in group]
    lists = []
    for rank in range(ranks):
        warm_up = warm_up_passes(rank, ranks, micro_batches, chunks, unit)
        forward = [Action("F", chunk * ranks + rank, m) for chunk, m in turns]
        backward = [Action("B", (chunks - 1 - chunk) * ranks + rank, m) for chunk, m in turns]
        steady = [action for pair in zip(forward[warm_up:], backward, strict=False) for action in pair]
        lists.append(forward[:warm_up] + steady + backward[len(turns) - warm_up :])
    return lists


def warm_up_passes(rank: int, ranks: int, micro_batches: int, chunks: int, unit: int) -> int:
    """Forward passes of a rank before its first backward pass, the one just before it not counted."""
    return min(micro_batches * chunks, 2 * (ranks - 1 - rank) + (chunks - 1) * unit)


def interleaved_in_flight(rank: int, ranks: int, micro_batches: int, chunks: int) -> int:
    """Return the warm-up and one more pass of a chunk, for units of P."""
    return min(micro_batches * chunks, warm_up_passes(rank, ranks, micro_batches, chunks, ranks) + 1)


def interleaved_unit_fault(ranks: int, micro_batches: int, unit: int) -> str | None:
    """Why so many micro-batches can not go together; None where they can."""
    if not ranks <= unit <= micro_batches:
        return f"pp = {ranks} ≤ unit = {unit} ≤ micro-batches = {micro_batches} must hold"
    rest = micro_batches % unit
    if 0 < rest < ranks:
        return f"micro-batches % unit = {micro_batches} % {unit} = {rest} must be 0, or pp = {ranks} at least"
    return None
