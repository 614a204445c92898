"""A greedy order for unequal stages: simulate the pipeline, and let each free rank run the earliest pass.

I goes before F where both can begin; F where its input is there and the rank's memory allows; W where the rank would
wait for longer than a part of it, or where nothing else fits into memory. A rank may let F wait for an I that is about
to arrive. How long it waits for either is ``WaitingRule``. Earlier chunks of a rank leave memory for one pass of each
later one, so that a micro-batch that has begun can always go on.
"""

from typing import NamedTuple

from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pipeline_state import (
    EPSILON,
    NOTHING,
    Choice,
    EarliestFirst,
    PlayedPasses,
)


class WaitingRule(NamedTuple):
    """The part of a W for which a rank waits for F or I, and the part of an F for which F waits for I."""

    for_pass: float
    for_input: float


def greedy(pipeline: Pipeline, limit: float, patience: WaitingRule) -> PlayedPasses:
    """All passes as they are played within ``limit`` forward passes of a stage (no less than one for each chunk)."""
    game = _Greedy(pipeline, max(limit, float(pipeline.chunks)), patience)
    game.run_all()
    assert all(len(ends) == pipeline.micro_batches for ends in game.ends), "the game ended early"
    return game.played()


class _Greedy(EarliestFirst):
    def __init__(self, pipeline: Pipeline, limit: float, patience: WaitingRule) -> None:
        super().__init__(pipeline)
        self.patience, self.forward = patience, pipeline.times.forward
        place = pipeline.placement
        self.mine = [[s for s, on in enumerate(place) if on == rank] for rank in range(pipeline.ranks)]
        reserved = [len(self.mine[rank]) - 1 - self.mine[rank].index(s) for s, rank in enumerate(place)]
        self.most = [limit - 1 - reserve + EPSILON for reserve in reserved]

    def choice(self, rank: int) -> Choice:
        now, best = self.clock[rank], NOTHING
        for stage in self.mine[rank]:
            ready = self.ready(self.stages + stage)
            if ready is not None:
                ahead = self.patience.for_input * self.forward[stage]
                best = min(best, Choice(max(ready, now) - ahead, 0, -stage, self.stages + stage))
            ready = self.ready(stage)
            if ready is not None and self.held[rank] <= self.most[stage]:
                best = min(best, Choice(max(ready, now), 1, -stage, stage))
        if best.order == 0:
            ahead = self.patience.for_input * self.forward[-best.before]
            best = best._replace(start=max(now, best.start + ahead))
        for stage in self.mine[rank]:
            late = best.start > now + self.patience.for_pass * self.seconds[2 * self.stages + stage]
            if late and self.waits(stage):
                return Choice(now, 2, -stage, 2 * self.stages + stage)
        return best
