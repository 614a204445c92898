"""Lower bounds of the makespan: the work of the busiest rank, and the idle time that a memory limit adds to it.

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

Stages that hold unequally much (``Holding``) are weighted with it in these sums; where passes are counted, the stage of
a rank that holds least stands for all. A latency is counted from the beginning of all: then b_q is 0, a rank's own
times come behind its beginning, and with all F and I of a rank done there still is the way back,

    latency ≥ b_r + h_r + M·Σ(F + I) + e_rq.
"""

from math import ceil, floor
from typing import NamedTuple

from meshwright.schedules.solve.solver_input import SolverInput
from meshwright.schedules.split_backward.pass_numbers import PassTable, first_starts
from meshwright.schedules.split_backward.pipeline_state import EPSILON

WORK = "the work of the busiest rank"
FIRST = "the work of a rank and its wait for the first input gradient, with what memory allows to run before"
MEMORY = "the memory of a rank, taken from each forward pass to its input and weight gradients"
BACK = "forward passes and input gradients of a rank, and the way back from there"
LAST = "what memory allows to be left when a rank runs its last forward pass, and the way back from there"


class Bound(NamedTuple):
    """The least makespan (or latency, where that is the goal) in ticks, and where it comes from."""

    makespan: int
    reason: str


def lower_bound(task: SolverInput) -> Bound:
    """Return the largest of the bounds, for times in whole ticks."""
    ends, ranks = _Ends(task), range(task.pipeline.ranks)
    pairs = [(rank, other) for rank in ranks for other in ranks]
    found = {
        WORK: max(ends.later(rank) + ends.work[rank] for rank in ranks),
        FIRST: max(ends.later(rank) + ends.idle(rank) + ends.work[rank] for rank in ranks),
        MEMORY: max(ends.later(rank) + ends.held(rank) for rank in ranks),
        LAST: max(ends.last(*pair) for pair in pairs),
        BACK: max(ends.back(*pair) for pair in pairs),
    }
    found[MEMORY] = max(found[MEMORY], *(ends.held_until_last(*pair) for pair in pairs))
    reason = max(found, key=lambda name: found[name])
    return Bound(ceil(found[reason] - EPSILON), reason)


def fitting(room: float, each: float, most: int) -> int:
    """Return how many of ``most`` fit."""
    return most if each * most <= room else floor(room / each)


class _Ends:
    """Beginning and end of every rank's work."""

    def __init__(self, task: SolverInput) -> None:
        pipeline, self.holding = task.pipeline, task.holding
        self.times, self.limit = pipeline.times, task.holding.limit + EPSILON
        self.count, stages, place = pipeline.micro_batches, pipeline.stages, pipeline.placement
        self.counted_from = task.counted_from
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

    def later(self, rank: int) -> float:
        """Return the start of a rank, from where its time is counted."""
        return self.begun[rank] - self.counted_from[rank]

    def _least(self, rank: int) -> tuple[float, float]:
        """Return the least memory of a micro-batch in any of a rank's stages: until I, and until W."""
        mine, holding = self.mine[rank], self.holding
        return min(holding.whole[stage] for stage in mine), min(holding.left[stage] for stage in mine)

    def idle(self, rank: int) -> float:
        """h: before the first I."""
        mine = self.mine[rank]
        fits, forward = fitting(self.limit, self._least(rank)[0], self.count * len(mine)), 0.0
        for seconds in sorted((self.times.forward[stage] for stage in mine), reverse=True):
            passes = min(fits, self.count)
            fits, forward = fits - passes, forward + passes * seconds
        wait = self.start[self.stages + mine[-1]] - self.begun[rank]
        return max(0.0, wait - forward)

    def left(self, rank: int) -> float:
        """g: what can be left behind the start of the last F, besides itself."""
        mine, times = self.mine[rank], self.times
        most, (whole, left) = self.count * len(mine), self._least(rank)
        both = max(times.input[stage] + times.weight[stage] for stage in mine)
        weight = max(times.weight[stage] for stage in mine)
        found = 0.0
        for waiting in range(1, fitting(self.limit, whole, most) + 1):
            weights = fitting(self.limit - waiting * whole, left, most - waiting)
            found = max(found, waiting * both + weights * weight)
        return found

    def last(self, rank: int, other: int) -> float:
        """Bound the time of ``other`` by the last F of ``rank``."""
        mine = self.mine[rank]
        stage, lowest = mine[-1], self.mine[other][0]
        all_fit = self.count * len(mine) * self._least(rank)[0] <= self.limit
        begin = self.begun[rank] + (0.0 if all_fit else self.idle(rank))
        forward = self.times.forward[stage]
        until = begin + max(0.0, self.work[rank] - forward - self.left(rank))
        way = self._input_end(lowest) - self.start[stage]
        return until + way + self.times.weight[lowest] - self.counted_from[other]

    def _behind(self, rank: int, other: int) -> float:
        """e: from the end of the last I of a rank to the end of another."""
        mine, lowest = self.mine[rank][0], self.mine[other][0]
        if lowest > mine:
            return 0.0
        return self._input_end(lowest) - self._input_end(mine) + self.times.weight[lowest]

    def back(self, rank: int, other: int) -> float:
        """Bound the time of ``other`` by the last I of ``rank``."""
        both = sum(self.times.forward[stage] + self.times.input[stage] for stage in self.mine[rank])
        until = self.begun[rank] + self.idle(rank) + self.count * both
        return until + self._behind(rank, other) - self.counted_from[other]

    def _held_over_both_passes(self, rank: int) -> float:
        """Σu: from the start of F to the end of I, of all stages of a rank, times what they hold."""
        whole = self.holding.whole
        return sum(whole[stage] * (self._input_end(stage) - self.start[stage]) for stage in self.mine[rank])

    def held(self, rank: int) -> float:
        """From the beginning of a rank to its end, by what it holds for how long."""
        for_weights = sum(self.holding.left[stage] * self.times.weight[stage] for stage in self.mine[rank])
        return self.count * (self._held_over_both_passes(rank) + for_weights) / self.limit

    def held_until_last(self, rank: int, other: int) -> float:
        """Bound the time of ``other`` by the memory that ``rank`` holds until its last I."""
        until = self.begun[rank] + self.count * self._held_over_both_passes(rank) / self.limit
        return until + self._behind(rank, other) - self.counted_from[other]
