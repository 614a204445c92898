"""1F1B with S and T on all ranks at the same time, as tensor parallelism would run them (Lin et al., OSDI 2024).

Nobody does anything else while a micro-batch's S and T run, so that nothing of their exchanges is hidden. To lose no
more than that, all ranks must come to each S together: between two of them every rank runs one forward and one backward
pass, those an even number n of ranks before the last one the backward pass first, the others the forward pass first.
From one S to the next a micro-batch then goes two ranks on (forward, if F is no longer than B) or one rank back, and
rank r holds 1.5·(P − r) micro-batches, rounded down.
"""

from meshwright.errors import Problem, UnsupportedError
from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators.one_f_one_b import one_f_one_b
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.stage_times import ShareTimes


def interlaced(
    lists: ActionLists, pipeline: Pipeline, ways: StageChains, share: ShareTimes, late: int
) -> list[list[Action]]:
    """One list per rank, whatever S and T take; other lists than 1F1B's are refused."""
    if pipeline.chunks > 1 or [list(actions) for actions in lists] != one_f_one_b(pipeline):
        rule = "S and T on all ranks at once are laid out for 1F1B only"
        raise UnsupportedError(Problem("schedule", "other lists", rule, "1f1b"))
    return [_rank_list(rank, pipeline.ranks, pipeline.micro_batches) for rank in range(pipeline.ranks)]


def _rank_list(rank: int, ranks: int, micro_batches: int) -> list[Action]:
    behind = ranks - 1 - rank
    ahead = behind // 2 + 1
    actions: list[Action] = []
    for number in range(-ahead, micro_batches + behind):
        pair = [Action("F", rank, number + ahead), Action("B", rank, number - behind)]
        shares = [Action("S", ranks + rank, number), Action("T", ranks + rank, number)]
        actions += shares + (pair if behind % 2 else pair[::-1])
    return [action for action in actions if 0 <= (action.micro_batch or 0) < micro_batches]
