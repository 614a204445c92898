"""Add S and T to the lists of any schedule (Yeung et al., arXiv 2411.05288, section 5).

The paper delays all backward passes by as many micro-batches as there are barriers; 1F1B then holds P + 2 or P + 1 of
them. Schedules such as V-Half and ZB-H1 leave a micro-batch room between its last forward and its first backward pass
already. So smaller delays are tried too, and the shortest lists are taken, of equally short ones those that hold least.
"""

from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.stage_times import ShareTimes
from meshwright.schedules.vocabulary.delayed_backward import delayed
from meshwright.schedules.vocabulary.pass_insertion import Player


def vocabulary_parallel(
    lists: ActionLists, pipeline: Pipeline, ways: StageChains, share: ShareTimes, late: int
) -> list[list[Action]]:
    """Return the schedule's lists with S and T of every micro-batch on every rank."""
    tried = [
        Player(delayed(lists, delay * pipeline.chunks), pipeline, ways, share, late).play()
        for delay in range(ways.barriers + 1)
    ]
    least = min(player.makespan for player in tried)
    return next(player.lists for player in tried if player.makespan <= least * (1 + 1e-9))
