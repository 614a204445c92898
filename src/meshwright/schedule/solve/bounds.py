"""What no lists can be shorter than: the work of the busiest rank, and what a memory limit adds to it.

Rank r begins at b_r, when the first micro-batch can be there, and has w_r to do. Before its first I, no sooner than
a_r, it runs F alone, and no more of them than fit into memory, f_r of time at most. So it idles for

    h_r = max(0, a_r − b_r − f_r)        before its first I.

Its last F is that of the last micro-batch in its last stage, for F of a micro-batch go through the stages in turn. With
it the rank holds no more than its limit, and what waits for I or W then is all that is left to do: g_r at most, the
largest x·(I + W) + y·W with x + kept·y within the limit. So that F begins at b_r + h_r + w_r − F − g_r or later
(without h_r where all F fit into memory, so that the last of them may come before the first I). From its start to the
end of rank q, by the I of the last micro-batch and its W there, it takes d_rq at least:

    makespan ≥ h_r + w_r   and   makespan ≥ b_r + h_r + w_r − F − g_r + d_rq − b_q    for all ranks r and q.

And memory is taken for a time: F of a stage is held for u at least until its I has ended, the way there and back, and
what I leaves of it for W more; a rank of memory L has L for every unit of time. With e_rq from the end of the last I of
rank r to the end of rank q, M micro-batches and the sums over the rank's stages,

    makespan ≥ M·Σ(u + kept·W) / L   and   makespan ≥ b_r + M·Σu / L + e_rq − b_q.
"""

from math import ceil, floor
from typing import NamedTuple

from meshwright.schedule.game import EPSILON
from meshwright.schedule.passes import PassTable, first_starts
from meshwright.schedule.pipeline import Pipeline

WORK = "the work of the busiest rank"
FIRST = "the work of a rank and its wait for the first input gradient, with what memory allows to run before"
MEMORY = "the memory of a rank, taken from each forward pass to its input and weight gradients"
LAST = "what memory allows to be left when a rank runs its last forward pass, and the way back from there"


class Bound(NamedTuple):
    """The least makespan in ticks, and where it comes from."""

    makespan: int
    reason: str


def lower_bound(pipeline: Pipeline, limit: float) -> Bound:
    """The largest of the bounds, of times in whole ticks; ``limit`` in forward passes of a stage."""
    ends, ranks = _Ends(pipeline, limit), range(pipeline.ranks)
    pairs = [(rank, other) for rank in ranks for other in ranks]
    found = {
        WORK: max(ends.work),
        FIRST: max(ends.idle(rank) + ends.work[rank] for rank in ranks),
        MEMORY: max(map(ends.held, ranks)),
        LAST: max(ends.last(*pair) for pair in pairs),
    }
    found[MEMORY] = max(found[MEMORY], *(ends.held_until_last(*pair) for pair in pairs))
    reason = max(found, key=lambda name: found[name])
    return Bound(ceil(found[reason] - EPSILON), reason)


def fitting(room: float, each: float, most: int) -> int:
    """How many of ``most`` fit."""
    return most if each * most <= room else floor(room / each)


class _Ends:
    """Beginning and end of every rank's work."""

    def __init__(self, pipeline: Pipeline, limit: float) -> None:
        self.times, self.kept, self.limit = pipeline.times, pipeline.times.kept, limit + EPSILON
        self.count, stages, place = pipeline.micro_batches, pipeline.stages, pipeline.placement
        self.begun, table = first_starts(pipeline), PassTable(pipeline)
        self.mine = [[s for s in range(stages) if place[s] == rank] for rank in range(pipeline.ranks)]
        self.work = [self.count * sum(map(self._whole, mine)) for mine in self.mine]
        # the first micro-batch by itself: start of every F, then end of every I
        path = [*range(stages), *range(2 * stages - 1, stages - 1, -1)]
        self.start, clock = [0.0] * (2 * stages), 0.0
        for code in path:
            clock += table.delay[code]
            self.start[code] = clock
            clock += table.seconds[code]
        self.stages = stages

    def _whole(self, stage: int) -> float:
        return self.times.forward[stage] + self.times.input[stage] + self.times.weight[stage]

    def _input_end(self, stage: int) -> float:
        return self.start[self.stages + stage] + self.times.input[stage]

    def idle(self, rank: int) -> float:
        """h: before the first I."""
        mine = self.mine[rank]
        fits, forward = floor(self.limit), 0.0
        for seconds in sorted((self.times.forward[stage] for stage in mine), reverse=True):
            passes = min(fits, self.count)
            fits, forward = fits - passes, forward + passes * seconds
        wait = self.start[self.stages + mine[-1]] - self.begun[rank]
        return max(0.0, wait - forward)

    def left(self, rank: int) -> float:
        """g: what can be left behind the start of the last F, besides itself."""
        mine, times = self.mine[rank], self.times
        most = self.count * len(mine)
        both = max(times.input[stage] + times.weight[stage] for stage in mine)
        weight = max(times.weight[stage] for stage in mine)
        found = 0.0
        for waiting in range(1, min(most, floor(self.limit)) + 1):
            rest = self.limit - waiting
            weights = fitting(rest, self.kept, most - waiting)
            found = max(found, waiting * both + weights * weight)
        return found

    def last(self, rank: int, other: int) -> float:
        """From the beginning of ``other`` to its end, by the last F of ``rank``."""
        mine = self.mine[rank]
        stage, lowest = mine[-1], self.mine[other][0]
        all_fit = self.count * len(mine) <= self.limit
        begin = self.begun[rank] + (0.0 if all_fit else self.idle(rank))
        forward = self.times.forward[stage]
        until = begin + max(0.0, self.work[rank] - forward - self.left(rank))
        way = self._input_end(lowest) - self.start[stage]
        return until + way + self.times.weight[lowest] - self.begun[other]

    def _there_and_back(self, rank: int) -> float:
        """Σu: from the start of F to the end of I, of all stages of a rank."""
        return sum(self._input_end(stage) - self.start[stage] for stage in self.mine[rank])

    def held(self, rank: int) -> float:
        """From the beginning of a rank to its end, by what it holds for how long."""
        for_weights = self.kept * sum(self.times.weight[stage] for stage in self.mine[rank])
        return self.count * (self._there_and_back(rank) + for_weights) / self.limit

    def held_until_last(self, rank: int, other: int) -> float:
        """From the beginning of ``other`` to its end, by what ``rank`` holds until its last I."""
        until = self.begun[rank] + self.count * self._there_and_back(rank) / self.limit
        mine, lowest = self.mine[rank][0], self.mine[other][0]
        way = self._input_end(lowest) - self._input_end(mine) if lowest <= mine else 0.0
        return until + max(0.0, way) + self.times.weight[lowest] * (lowest <= mine) - self.begun[other]
