"""The fastest paths of a few micro-batches by trying all of them in every order of passes."""

from collections import Counter
from itertools import pairwise, product
from math import inf
from operator import add, getitem


def fastest(problem, below=inf):
    """Return the least makespan over all legal paths and orders of passes on nodes; ``below`` where none is less."""
    best = below
    choices = [problem.paths(at) for at in problem.micro_batches]
    combinations = [chosen for chosen in product(*choices) if _legal(problem, [one.path for one in chosen])]
    combinations.sort(key=lambda chosen: max(one.end_s for one in chosen))
    for chosen in combinations:
        if max(one.end_s for one in chosen) >= best:
            break
        best = min(best, _best_order(problem, [one.visits for one in chosen], best))
    return best


def _legal(problem, paths):
    stages = Counter(stage for path in paths for stage in problem.stages_visited(path))
    nodes = Counter(node for path in paths for node in path if problem.stage_of[node] != problem.stages[0])
    return all(problem.least <= stages[stage] <= problem.most for stage in problem.optional) and all(
        count <= problem.memory for count in nodes.values()
    )


def _best_order(problem, passes, best):
    """Add passes in the order of their begins, each as early as it can be; cut what cannot be faster than the best."""
    count = len(passes)
    seconds = [[visit.end_s - visit.start_s for visit in visits] for visits in passes]
    gaps = [
        [0.0, *(problem.message_s[a.node][b.node] * (a.node != b.node) for a, b in pairwise(visits))]
        for visits in passes
    ]
    rest = [
        [sum(took[at:]) + sum(gap[at:]) for at in range(len(took) + 1)]
        for took, gap in zip(seconds, gaps, strict=True)
    ]
    works = [0.0] * len(problem.stage_of)
    for visits in passes:
        for visit in visits:
            works[visit.node] += visit.end_s - visit.start_s

    def go_on(at, ready, free, left, last):
        nonlocal best
        if max(map(add, ready, map(getitem, rest, at))) >= best - 1e-12:
            return
        if any(work and max(last, free[node]) + work >= best - 1e-12 for node, work in enumerate(left)):
            return
        if all(place == len(visits) for place, visits in zip(at, passes, strict=True)):
            best = max(ready)
            return
        for i in range(count):
            if at[i] == len(passes[i]):
                continue
            node, took = passes[i][at[i]].node, seconds[i][at[i]]
            start = max(ready[i] + gaps[i][at[i]], free[node])
            if start >= last:
                end = start + took
                go_on(
                    [*at[:i], at[i] + 1, *at[i + 1 :]],
                    [*ready[:i], end, *ready[i + 1 :]],
                    [*free[:node], end, *free[node + 1 :]],
                    [*left[:node], max(0.0, left[node] - took), *left[node + 1 :]],
                    start,
                )

    releases = [problem.releases[i] if problem.releases else 0.0 for i in range(count)]
    go_on([0] * count, releases, [0.0] * len(works), works, 0.0)
    return best
