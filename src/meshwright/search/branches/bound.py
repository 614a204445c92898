"""What no lists for a graph can be shorter than, whatever operators lie where.

    path    the longest way of one micro-batch, F and I of all its operators and W of the last, without messages
    heavy   an operator lies on one rank: the way to its F, and M·(F + I + W)
    work    ranks share all work; of P ranks that begin, no more begin early than there are operators that can

With a_o the way to the F of operator o, the P least of them in all are what the ranks wait for together:

    step ≥ (M·Σ(F + I + W) + the P least a_o) / P.
"""

from typing import NamedTuple

from meshwright.search.branches.play import needs_of
from meshwright.search.branches.task import Task

PATH = "the longest way of one micro-batch"
HEAVY = "an operator that takes long"
WORK = "the work of all ranks and their wait for the first micro-batch"
SOLVER = "constraint programming"


class Bound(NamedTuple):
    """Least ticks of a step, and where they come from."""

    step: int
    reason: str


def lower_bound(task: Task) -> Bound:
    """The largest of the bounds."""
    graph, count = task.graph, task.micro_batches
    stages = len(graph.costs)
    needs, seconds = needs_of(graph, (0,) * stages), graph.seconds
    reach = [0] * len(needs)
    order = [*range(stages), *range(2 * stages - 1, stages - 1, -1), *range(2 * stages, 3 * stages)]
    for code in order:
        reach[code] = max((reach[source] + seconds[source] for source, _ in needs[code]), default=0)
    path = max(start + length for start, length in zip(reach, seconds, strict=True))
    heavy = max(reach[stage] + count * cost.work for stage, cost in enumerate(graph.costs))
    waits = sum(sorted(reach[:stages])[: task.ranks])
    shared = -(-(count * graph.work + waits) // task.ranks)
    return max(Bound(path, PATH), Bound(heavy, HEAVY), Bound(shared, WORK))
