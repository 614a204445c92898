"""The best chain: operators in a row, cut into stages, under the schedule that gives the shortest step.

That is what there is without branches. A row is any order in which each operator comes behind those that it needs; an
exact cut (``search/partition/``) balances time within memory. What an operator sends farther than to the next stage
goes by way of the stages between. As lists of the graph the same passes need less and wait less, so that an answer
that begins with them is never longer than the chain.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from meshwright.schedules.action import Action
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.solve.initial_schedules import PLAYED, split_orders
from meshwright.schedules.split_backward.pass_numbers import numbered
from meshwright.schedules.stage_times import StageTimes
from meshwright.search.operator_graph.graph import Graph, Groups, merged
from meshwright.search.operator_graph.greedy_lists import usual_plays
from meshwright.search.operator_graph.problem import RanksAndLists, Task, timed
from meshwright.search.partition.balance import Unfit, by_time
from meshwright.search.partition.layer_chain import Chain

CHUNKED = (2, 4)
"""Stages of a rank under schedules that have any number of them."""


class ChainSolution(NamedTuple):
    """Ticks of a chain's step, its schedule, and its lists as those of the graph."""

    step: int
    schedule: str
    answer: RanksAndLists


class Cut(NamedTuple):
    """Stages of a row, and the chain that they are: a message at every boundary."""

    groups: Groups
    placement: tuple[int, ...]
    chain: Graph


def feasible_chains(task: Task) -> Iterator[ChainSolution]:
    """Every chain that fits, of every row and every schedule."""

    @cache
    def cuts(placement: tuple[int, ...]) -> list[Cut]:
        found = (_cut(task, row, placement) for row in rows(task.graph))
        return list({cut.groups: cut for cut in found if cut}.values())

    ranks, count = min(task.ranks, len(task.graph.costs)), task.micro_batches
    for name, kind in SCHEDULES.items():
        if kind.chains > 1 or kind.fault(ranks, count):
            continue
        usual = CHUNKED if kind.chunked else (1,)
        for chunks in (kind.fixed_chunks,) if kind.fixed_chunks else usual:
            if ranks * chunks <= len(task.graph.costs):
                for cut in cuts(kind.placement(ranks, chunks)):
                    lists = kind.lists(ranks, count, chunks, _times(cut.chain))
                    yield from _if_it_fits(task, cut, name, lists)
    for cut in cuts(tuple(range(ranks))):
        for played in usual_plays(cut.chain, cut.placement, task):
            yield from _if_it_fits(task, cut, PLAYED, numbered(played.orders, len(cut.groups)))


def rows(graph: Graph) -> list[tuple[int, ...]]:
    """Orders of all operators: as they are numbered, branch behind branch from either side, and level by level."""
    choices: tuple[Callable[[list[int]], int], ...] = (
        lambda ready: ready.index(min(ready)),
        lambda ready: len(ready) - 1,
        lambda ready: 0,
    )
    orders = [_row(graph, choose, turn) for choose in choices for turn in (False, True)]
    return list(dict.fromkeys(orders))


def _row(graph: Graph, choose: Callable[[list[int]], int], turn: bool) -> tuple[int, ...]:
    left = [len(needed) for needed in graph.stages.before]
    ready = [operator for operator, number in enumerate(left) if not number]
    ready, row = (ready[::-1] if turn else ready), list[int]()
    while ready:
        operator = ready.pop(choose(ready))
        row.append(operator)
        behind = graph.stages.behind[operator]
        for other in behind[::-1] if turn else behind:
            left[other] -= 1
            ready += [other] if not left[other] else []
    return tuple(row)


def _cut(task: Task, row: tuple[int, ...], placement: tuple[int, ...]) -> Cut | None:
    costs = [task.graph.costs[operator] for operator in row]
    stages, ranks = len(placement), max(placement) + 1
    in_flight = [
        min(task.micro_batches, ranks - stage if stages == ranks else ranks) for stage in range(stages)
    ]
    forward, input_, weight, kept, _, states = zip(*costs, strict=True)
    chain = Chain.of(
        placement,
        forward=forward,
        input_=input_,
        weight=weight,
        states=states,
        kept=kept,
        in_flight=in_flight,
    )
    found = by_time(chain) if task.memory is None else by_time(chain, task.memory)
    if isinstance(found, Unfit):
        return None
    groups = tuple(row[a:b] for a, b in pairwise(found.stops))
    return Cut(groups, placement, chain_graph(task.graph, groups))


def chain_graph(graph: Graph, groups: Groups) -> Graph:
    """Return the chain of groups; a boundary carries every edge that crosses it."""
    home = {operator: group for group, operators in enumerate(groups) for operator in operators}
    sent = [dict[int, int]() for _ in groups[1:]]
    for (source, target), ticks in graph.edges.items():
        for boundary in range(home[source], home[target]):
            sent[boundary][source] = max(ticks, sent[boundary].get(source, 0))
    edges = {(stage, stage + 1): sum(of.values()) for stage, of in enumerate(sent)}
    return Graph(merged(graph, groups).costs, edges)


def _times(chain: Graph) -> StageTimes:
    forward, input_, weight = ([cost[kind] for cost in chain.costs] for kind in range(3))
    message = max(chain.edges.values(), default=0)
    return StageTimes(tuple(forward), tuple(input_), tuple(weight), message)


def _if_it_fits(task: Task, cut: Cut, name: str, lists: list[list[Action]]) -> Iterator[ChainSolution]:
    orders = [*split_orders(lists, len(cut.groups)), *[[]] * (task.ranks - len(lists))]
    answer = RanksAndLists(task, cut.groups, cut.placement, orders)
    if answer.fits:
        yield ChainSolution(round(timed(cut.chain, lists).latency), name, answer)
