"""A greedy order for unequal stages: simulate the pipeline, and let each free rank run the earliest pass.

I goes before F where both can begin; F where its input is there and the rank's memory allows; W where the rank would
wait for longer than a part of it, or where nothing else fits into memory. A rank may let F wait for an I that is about
to arrive. How long it waits for either is ``WaitingRule``. Earlier chunks of a rank leave memory for one pass of each
later one, so that a micro-batch that has begun can always go on.
"""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pass_numbers import Pass
from meshwright.schedules.split_backward.pipeline_state import EPSILON, PipelineState, PlayedPasses


class WaitingRule(NamedTuple):
    """The part of a W for which a rank waits for F or I, and the part of an F for which F waits for I."""

    for_pass: float
    for_input: float


class Choice(NamedTuple):
    """A rank's next pass, compared by its start, then I before F before W, then the later stage first."""

    start: float
    order: int
    before: int
    """The stage, negative."""
    code: Pass


NOTHING = Choice(float("inf"), 3, 0, -1)


def greedy(pipeline: Pipeline, limit: float, patience: WaitingRule) -> PlayedPasses:
    """All passes as they are played within ``limit`` forward passes of a stage (no less than one for each chunk)."""
    game = _Greedy(pipeline, max(limit, float(pipeline.chunks)), patience)
    game.run_all()
    return game.played()


class _Greedy(PipelineState):
    def __init__(self, pipeline: Pipeline, limit: float, patience: WaitingRule) -> None:
        super().__init__(pipeline)
        self.patience, self.forward = patience, pipeline.times.forward
        place = pipeline.placement
        self.mine = [[s for s, on in enumerate(place) if on == rank] for rank in range(pipeline.ranks)]
        reserved = [len(self.mine[rank]) - 1 - self.mine[rank].index(s) for s, rank in enumerate(place)]
        self.most = [limit - 1 - reserve + EPSILON for reserve in reserved]

    def run_all(self) -> None:
        """Run the pass that begins first, until all are run; outdated choices are recognised by their number."""
        versions = [0] * len(self.mine)
        queue = [(self._choice(rank), rank, 0) for rank in range(len(self.mine))]
        heapify(queue)
        while queue:
            choice, rank, number = heappop(queue)
            if number != versions[rank] or choice is NOTHING:
                continue
            code, target = choice.code, -1
            if code < 2 * self.stages:
                target = self.target[code]
                self.run(code, self.ready(code) or 0.0)
            else:
                self.run(code)
            for changed in {rank, self.rank[target]} if target >= 0 else {rank}:
                versions[changed] += 1
                heappush(queue, (self._choice(changed), changed, versions[changed]))
        assert all(len(ends) == self.micro_batches for ends in self.ends), "the game ended early"

    def _choice(self, rank: int) -> Choice:
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
