"""Lower bounds of the step for a graph, over all placements and action lists.

    path    the longest way of one micro-batch, F and I of all its operators and W of the last, without messages
    heavy   an operator lies on one rank: the way to its F, and M·(F + I + W)
    work    ranks share all work, and have little of it to begin and to end with

For the last let r_c be the longest way to a pass c, p_c its time, q_c the longest way behind it, and r_o, q_o the least
of them of an operator o. By a moment t no more than p_c and t − r_c has been done of c in each of M micro-batches, and
of o, which lies on one rank, no more than t − r_o; so that by then all ranks have done no more than

    done(t) = min(P·t, Σ_o min(t − r_o, Σ_c in o M·min(p_c, t − r_c))),     parts below 0 left out,

and in the last s of a step no more than rest(s), the same with q. If the step takes t + s or longer, the ranks are busy
for P·(step − t − s) between the two at most:

    step ≥ t + s + (M·Σ(F + I + W) − done(t) − rest(s)) / P.

Moments at which a part begins or ends to grow are tried, with t + s up to what no step is below by what is known.
"""

from collections.abc import Sequence
from typing import NamedTuple

from meshwright.search.operator_graph.greedy_lists import needs_of
from meshwright.search.operator_graph.problem import Task

PATH = "the longest way of one micro-batch"
HEAVY = "an operator that takes long"
WORK = "the work of all ranks, and how little of it can be done early and late"
SOLVER = "constraint programming"
MOMENTS = 200
"""So many are tried at each end of a step."""


class Bound(NamedTuple):
    """Least ticks of a step, and where they come from."""

    step: int
    reason: str


def lower_bound(task: Task) -> Bound:
    """Return the largest of the bounds."""
    graph, count = task.graph, task.micro_batches
    stages, seconds = len(graph.costs), graph.seconds
    reach, rest = _ways(task)
    path = max(start + length for start, length in zip(reach, seconds, strict=True))
    heavy = max(reach[stage] + count * cost.work for stage, cost in enumerate(graph.costs))
    known = max(Bound(path, PATH), Bound(heavy, HEAVY))
    begin, end = (_Window(task, ways, stages) for ways in (reach, rest))
    while True:
        idle = _most_idle(begin.idle, end.idle, known.step)
        shared = -(-(count * graph.work + idle) // task.ranks)
        if shared <= known.step:
            return known
        known = Bound(shared, WORK)


def _ways(task: Task) -> tuple[list[int], list[int]]:
    """Return the longest path of one micro-batch to the beginning of every pass, and from its end."""
    graph = task.graph
    stages = len(graph.costs)
    needs, seconds = needs_of(graph, (0,) * stages), graph.seconds
    reach, rest = [0] * len(needs), [0] * len(needs)
    order = [*range(stages), *range(2 * stages - 1, stages - 1, -1), *range(2 * stages, 3 * stages)]
    for code in order:
        reach[code] = max((reach[source] + seconds[source] for source, _ in needs[code]), default=0)
    for code in reversed(order):
        for source, _ in needs[code]:
            rest[source] = max(rest[source], rest[code] + seconds[code])
    return reach, rest


class _Window:
    """One end of a step, with the ways from it: how long all ranks together idle at least until every moment."""

    def __init__(self, task: Task, ways: Sequence[int], stages: int) -> None:
        self.ranks, self.count, seconds = task.ranks, task.micro_batches, task.graph.seconds
        of_stages = ([(ways[c], seconds[c]) for c in range(s, len(ways), stages)] for s in range(stages))
        self.operators = [[one for one in passes if one[1]] for passes in of_stages]
        every = [one for passes in self.operators for one in passes]
        moments = sorted({moment for way, length in every for moment in (way, way + length)} | {0})
        tried = {*moments[:: -(-len(moments) // MOMENTS)], moments[-1]}
        self.idle = [(moment, self._idle(moment)) for moment in sorted(tried)]

    def _idle(self, moment: int) -> int:
        done = sum(self._done(passes, moment) for passes in self.operators)
        return self.ranks * moment - min(self.ranks * moment, done)

    def _done(self, passes: Sequence[tuple[int, int]], moment: int) -> int:
        """Return the most ticks of an operator's passes that can be done by a moment."""
        parts = [min(length, moment - way) for way, length in passes if way < moment]
        longest = max((moment - way for way, _ in passes), default=0)
        return min(self.count * sum(parts), max(0, longest))


def _most_idle(begin: Sequence[tuple[int, int]], end: Sequence[tuple[int, int]], step: int) -> int:
    """Return the largest sum of idle ticks of two moments that do not overlap in a step of that length."""
    most = 0
    for moment, idle in begin:
        behind = max((other for at, other in end if moment + at <= step), default=None)
        if behind is not None:
            most = max(most, idle + behind)
    return most
