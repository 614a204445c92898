"""Time given paths by a dispatch rule: the pass that can begin first runs, of several the one with most to come."""

from collections.abc import Sequence

from meshwright.simulate.churn.paths.path_problem import Path, PathProblem, TimedPath, Visit


def dispatched(problem: PathProblem, paths: Sequence[Path]) -> tuple[TimedPath, ...]:
    """Return the paths with times at which no two passes are on a node at once."""
    alone = [problem.timed(at, path).visits for at, path in enumerate(paths)]
    ends = [visits[-1].end_s for visits in alone]
    done: list[list[Visit]] = [[] for _ in paths]
    free = [0.0] * len(problem.stage_of)
    ready = [visits[0].start_s for visits in alone]
    waiting = set(range(len(paths)))
    while waiting:

        def first(at: int) -> tuple[float, float, int]:
            visit = alone[at][len(done[at])]
            return max(ready[at], free[visit.node]), visit.start_s - ends[at], at

        at = min(waiting, key=first)
        start_s, place = first(at)[0], len(done[at])
        visit = alone[at][place]
        end_s = start_s + visit.end_s - visit.start_s
        done[at].append(Visit(visit.node, visit.kind, start_s, end_s))
        free[visit.node] = max(free[visit.node], end_s)
        if place + 1 == len(alone[at]):
            waiting.remove(at)
        else:
            ready[at] = end_s + alone[at][place + 1].start_s - visit.end_s
    return tuple(TimedPath(path, tuple(visits)) for path, visits in zip(paths, done, strict=True))
