"""Coarser graphs: merge operators that a cut is unlikely to separate, until few are left.

Three kinds of pairs, in this order, and of each the pair with the least work first: neighbours that have nobody else
beside each other (a chain), branches with the same neighbours on both sides (many small ones side by side), and
neighbours with other neighbours. A pair is merged only where the groups stay without a circle, that is where no other
way leads from the one to the other. A group never holds more than a rank may, nor more than a rank's share of the work.
"""

from collections.abc import Iterator, Sequence

from meshwright.search.operator_graph.graph import Graph, Groups, in_order, merged, one_each
from meshwright.search.operator_graph.problem import Task


def coarsened(task: Task, most: int) -> Groups:
    """At most so many groups, where the limits allow so few."""
    groups = one_each(task.graph)
    while len(groups) > most:
        fewer = _with_one_pair(task, groups)
        if fewer is None:
            break
        groups = fewer
    return groups


def _with_one_pair(task: Task, groups: Groups) -> Groups | None:
    graph = merged(task.graph, groups)
    for pairs in (_chains(graph), _twins(graph), iter(graph.edges)):
        for a, b in sorted(pairs, key=lambda pair: graph.costs[pair[0]].work + graph.costs[pair[1]].work):
            if _allowed(task, graph, a, b):
                found = in_order(task.graph, joined(groups, a, b))
                if found:
                    return found
    return None


def joined(groups: Sequence[tuple[int, ...]], a: int, b: int) -> list[tuple[int, ...]]:
    """Return the groups with groups ``a`` and ``b`` merged."""
    return [*(group for i, group in enumerate(groups) if i not in (a, b)), groups[a] + groups[b]]


def _allowed(task: Task, graph: Graph, a: int, b: int) -> bool:
    one, other = graph.costs[a], graph.costs[b]
    bytes_ = one.state + other.state + one.kept + other.kept
    fits = task.memory is None or bytes_ <= task.memory
    return fits and task.ranks * (one.work + other.work) <= graph.work


def _chains(graph: Graph) -> Iterator[tuple[int, int]]:
    before, behind = graph.stages.before, graph.stages.behind
    return ((a, b) for a, b in graph.edges if behind[a] == (b,) and before[b] == (a,))


def _twins(graph: Graph) -> Iterator[tuple[int, int]]:
    """Stages with the same neighbours; neither needs the other."""
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for stage, sides in enumerate(zip(graph.stages.before, graph.stages.behind, strict=True)):
        if sides in seen:
            yield seen[sides], stage
        seen[sides] = stage
