"""Find the conflicts between timed paths, and the constraints of which every solution keeps at least one.

A stage with more than ``most`` visitors: of any ``most`` + 1 of them at least one does not visit it. A stage with fewer
than ``least``: one of the others does. A node with more than ``memory``: as for stages. Two passes at once on a node,
[s, s + d) and [t, t + e): either the first begins outside [s, t + e) or the second outside [t, s + d), for any two
begins inside these intervals meet (continuous-time conflict-based search, arXiv 1901.05506).
"""

from collections.abc import Sequence
from typing import NamedTuple

from meshwright.simulate.churn.paths.path_problem import Interval, PathProblem, TimedPath, Visit


class Constraint(NamedTuple):
    """Something that a micro-batch must or must not do.

    ``what``: ``leave out`` and ``visit`` a stage, ``avoid`` a node, or ``wait``: begin the pass ``kind`` on the node
    outside an interval.
    """

    micro_batch: int
    what: str
    where: int
    kind: str = ""
    when: Interval = (0.0, 0.0)


def first_conflict(problem: PathProblem, timed: Sequence[TimedPath]) -> list[Constraint]:
    """Return the constraints that a conflict leaves to choose from; none where there is no conflict."""
    return conflict_of_paths(problem, timed) or _of_collision(timed)


def conflict_of_paths(problem: PathProblem, timed: Sequence[TimedPath]) -> list[Constraint]:
    """Return the constraints that a conflict leaves to choose from, whatever the times of the passes are."""
    return _of_stages(problem, timed) or _of_memory(problem, timed)


def collisions(timed: Sequence[TimedPath]) -> list[tuple[int, Visit, int, Visit]]:
    """Return every pair of passes of two micro-batches that are on a node at once, the earliest first."""
    by_node: dict[int, list[tuple[float, float, int, Visit]]] = {}
    for micro_batch, path in enumerate(timed):
        for visit in path.visits:
            if visit.end_s > visit.start_s:
                by_node.setdefault(visit.node, []).append((visit.start_s, visit.end_s, micro_batch, visit))
    found = []
    for visits in by_node.values():
        visits.sort(key=lambda one: one[:3])
        for at, (_, end, one, visit) in enumerate(visits):
            for start, _, other, its in visits[at + 1 :]:
                if start >= end:
                    break
                found.append((one, visit, other, its))
    return sorted(found, key=lambda pair: pair[3].start_s)


def _of_stages(problem: PathProblem, timed: Sequence[TimedPath]) -> list[Constraint]:
    visited = [problem.stages_visited(path.path) for path in timed]
    for stage in problem.optional:
        visitors = [at for at in problem.micro_batches if stage in visited[at]]
        if len(visitors) > problem.most:
            slowest = sorted(visitors, key=lambda at: -timed[at].end_s)[: problem.most + 1]
            return [Constraint(at, "leave out", stage) for at in slowest]
        if len(visitors) < problem.least:
            others = [at for at in problem.micro_batches if at not in visitors]
            return [Constraint(at, "visit", stage) for at in others]
    return []


def _of_memory(problem: PathProblem, timed: Sequence[TimedPath]) -> list[Constraint]:
    for node, stage in enumerate(problem.stage_of):
        passing = [at for at, path in enumerate(timed) if node in path.path]
        if len(passing) > problem.memory and stage != problem.stages[0]:
            slowest = sorted(passing, key=lambda at: -timed[at].end_s)[: problem.memory + 1]
            return [Constraint(at, "avoid", node) for at in slowest]
    return []


def _of_collision(timed: Sequence[TimedPath]) -> list[Constraint]:
    found = collisions(timed)
    if not found:
        return []
    one, visit, other, its = max(found, key=_least_wait_s)
    return [
        Constraint(one, "wait", visit.node, visit.kind, (visit.start_s, its.end_s)),
        Constraint(other, "wait", its.node, its.kind, (its.start_s, visit.end_s)),
    ]


def _least_wait_s(pair: tuple[int, Visit, int, Visit]) -> float:
    """Return how long one of two passes that meet waits at least."""
    _, visit, _, its = pair
    return min(its.end_s - visit.start_s, visit.end_s - its.start_s)
