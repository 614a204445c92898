"""Refinement: move operators across stage borders while the simulated step gets shorter.

A border operator needs one of another stage, or is needed by one. Where the stages stay without a circle, lists keep
their order with the new times, or are played anew, whichever is shorter.
"""

from collections.abc import Callable, Iterator, Sequence

from meshwright.search.operator_graph.graph import in_order
from meshwright.search.operator_graph.greedy_lists import usual_plays
from meshwright.search.operator_graph.problem import RanksAndLists


def refined(answer: RanksAndLists, is_over: Callable[[], bool]) -> Iterator[RanksAndLists]:
    """Ever shorter answers whose stages differ at their borders, until there is none or ``is_over()``."""
    better: RanksAndLists | None = answer
    while better:
        answer = better
        better = next((other for other in _neighbours(answer, is_over) if other.step < answer.step), None)
        if better:
            yield better


def _neighbours(answer: RanksAndLists, is_over: Callable[[], bool]) -> Iterator[RanksAndLists]:
    """Answers in which one operator has gone over."""
    for operator, source, target in _borders(answer):
        if is_over():
            return
        groups = [list(group) for group in answer.groups]
        groups[source].remove(operator)
        groups[target].append(operator)
        yield from regrouped(answer, groups)


def _borders(answer: RanksAndLists) -> list[tuple[int, int, int]]:
    """Operators, their stages, and stages that they could go over to; those of the busiest ranks first."""
    home = {operator: stage for stage, group in enumerate(answer.groups) for operator in group}
    work = [0] * answer.task.ranks
    for rank, cost in zip(answer.placement, answer.graph.costs, strict=True):
        work[rank] += cost.work
    found = {
        (operator, home[operator], home[other])
        for edge in answer.task.graph.edges
        for operator, other in (edge, edge[::-1])
        if home[operator] != home[other]
    }
    place = answer.placement
    return sorted(found, key=lambda border: (work[place[border[2]]] - work[place[border[1]]], border))


def regrouped(answer: RanksAndLists, groups: Sequence[Sequence[int]]) -> Iterator[RanksAndLists]:
    """Yield the answer with other stages on the same ranks, simulated again, where that fits."""
    task = answer.task
    kept = [stage for stage, group in enumerate(groups) if group]
    ordered = in_order(task.graph, [groups[stage] for stage in kept])
    if ordered is None:
        return
    number = {stage: ordered.index(tuple(sorted(groups[stage]))) for stage in kept}
    placement = [0] * len(kept)
    for stage in kept:
        placement[number[stage]] = answer.placement[stage]
    stages = len(answer.groups)
    orders = [
        [code // stages * len(kept) + number[code % stages] for code in of_rank if code % stages in number]
        for of_rank in answer.orders
    ]
    again = RanksAndLists(task, ordered, tuple(placement), orders)
    if again.fits:
        yield again
    for lists in usual_plays(again.graph, again.placement, task):
        yield RanksAndLists(task, ordered, again.placement, lists.orders)
