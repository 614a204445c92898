"""Any schedule with S and T beside its other passes (Yeung et al., arXiv 2411.05288, section 5).

The paper delays all backward passes by as many micro-batches as there are barriers; 1F1B then holds P + 2 or P + 1 of
them. Schedules such as V-Half and ZB-H1 leave a micro-batch room between its last forward and its first backward pass
already. So smaller delays are tried too, and the shortest lists are taken, of equally short ones those that hold least.
"""

from meshwright.schedule.action import Action, ActionLists
from meshwright.schedule.dependencies import Ways
from meshwright.schedule.pipeline import Pipeline
from meshwright.schedule.times import ShareTimes
from meshwright.schedule.vocabulary.delay import delayed
from meshwright.schedule.vocabulary.insert import Player


def spread(
    lists: ActionLists, pipeline: Pipeline, ways: Ways, share: ShareTimes, late: int
) -> list[list[Action]]:
    """The schedule's lists with S and T of every micro-batch on every rank."""
    tried = [
        Player(delayed(lists, delay * pipeline.chunks), pipeline, ways, share, late).play()
        for delay in range(ways.barriers + 1)
    ]
    least = min(player.makespan for player in tried)
    return next(player.lists for player in tried if player.makespan <= least * (1 + 1e-9))
