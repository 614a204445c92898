"""Find paths without conflicts one micro-batch after the other, and plan some of them again while that helps.

Each micro-batch takes its best path around the passes of those before it (prioritised planning), at stages and nodes
that have room left. Then a few micro-batches, the slowest among them, are planned again in a random order; the change
stays where the makespan, or at the same makespan the sum of all ends, gets smaller. Seeded.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random

from meshwright.simulate.churn.paths.path_dispatch import dispatched
from meshwright.simulate.churn.paths.path_problem import PathProblem, TimedPath, makespan

STARTS, ROUNDS, AGAIN = 20, 300, 4


def repaired_paths(problem: PathProblem, seed: int = 0) -> tuple[TimedPath, ...]:
    """Return paths without conflicts; none where none were found."""
    draw, best = Random(seed), dict[int, TimedPath]()
    order = list(problem.micro_batches)
    for _ in range(STARTS):
        found = _dispatched_if_faster(problem, planned(problem, {}, order))
        if found and (not best or _cost(found) < _cost(best)):
            best = found
        draw.shuffle(order)
    for _ in range(ROUNDS if len(best) > 1 else 0):
        slowest = max(best, key=lambda at: best[at].end_s)
        others = [at for at in best if at != slowest]
        again = [slowest, *draw.sample(others, min(len(others), draw.randint(1, AGAIN)))]
        draw.shuffle(again)
        kept = {at: path for at, path in best.items() if at not in again}
        found = _dispatched_if_faster(problem, planned(problem, kept, again))
        if found and _cost(found) < _cost(best):
            best = found
    return tuple(best[at] for at in sorted(best))


def _dispatched_if_faster(problem: PathProblem, timed: dict[int, TimedPath]) -> dict[int, TimedPath]:
    """Return the same paths with the times of a dispatch rule if they end earlier so."""
    if not timed:
        return timed
    other = dict(enumerate(dispatched(problem, [timed[at].path for at in sorted(timed)])))
    return other if _cost(other) < _cost(timed) else timed


def planned(problem: PathProblem, kept: dict[int, TimedPath], order: Iterable[int]) -> dict[int, TimedPath]:
    """Add a path for each micro-batch of ``order`` to the kept ones; none if one has no path."""
    timed, waiting = dict(kept), list(order)
    while waiting:
        micro_batch = waiting.pop(0)
        path = _best_around(problem, micro_batch, timed, len(waiting))
        if path is None:
            return {}
        timed[micro_batch] = path
    return timed


def _best_around(
    problem: PathProblem, micro_batch: int, timed: dict[int, TimedPath], waiting: int
) -> TimedPath | None:
    """Return the best path around others that leaves paths for the waiting micro-batches."""
    visited = Counter(stage for path in timed.values() for stage in problem.stages_visited(path.path))
    passed = Counter(node for path in timed.values() for node in path.path)
    busy = _busy(timed)
    best: TimedPath | None = None
    for alone in problem.paths(micro_batch):
        if best is not None and alone.end_s >= best.end_s:
            break
        if not _has_room(problem, alone, visited, passed, waiting):
            continue
        path = _around(problem, micro_batch, alone, busy)
        if best is None or path.end_s < best.end_s:
            best = path
    return best


def _has_room(
    problem: PathProblem, path: TimedPath, visited: Counter[int], passed: Counter[int], waiting: int
) -> bool:
    """Return true if stages and nodes have room, and the waiting ones can still fill the other stages."""
    stages, first = problem.stages_visited(path.path), problem.stages[0]
    lacking = 0
    for stage in problem.optional:
        count = visited[stage] + (stage in stages)
        if count > problem.most or count + waiting < problem.least:
            return False
        lacking += max(0, problem.least - count)
    free = problem.visits - len(problem.compulsory)
    return lacking <= waiting * free and all(
        passed[node] < problem.memory or problem.stage_of[node] == first for node in path.path
    )


def _busy(timed: dict[int, TimedPath]) -> dict[int, list[tuple[float, float]]]:
    busy: dict[int, list[tuple[float, float]]] = {}
    for path in timed.values():
        for visit in path.visits:
            if visit.end_s > visit.start_s:
                busy.setdefault(visit.node, []).append((visit.start_s, visit.end_s))
    return busy


def _around(
    problem: PathProblem, micro_batch: int, alone: TimedPath, busy: dict[int, list[tuple[float, float]]]
) -> TimedPath:
    """Return a path timed around the passes of others."""
    forbidden = {}
    for visit in alone.visits:
        seconds = visit.end_s - visit.start_s
        if seconds > 0:
            theirs = busy.get(visit.node, ())
            forbidden[visit.node, visit.kind] = [
                (start - seconds + 1e-9 * seconds, end) for start, end in theirs
            ]
    return problem.timed(micro_batch, alone.path, forbidden)


def _cost(timed: dict[int, TimedPath]) -> tuple[float, float]:
    paths = list(timed.values())
    return makespan(paths), sum(path.end_s for path in paths)
