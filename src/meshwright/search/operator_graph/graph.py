"""A model as operators with branches, and the stages that groups of them form.

Operators are numbered so that each comes behind those whose output it needs. A stage is a group of operators on one
rank: its passes are theirs, one behind the other. Stages are a graph again, if no two of them need each other; then
they are operators of a smaller graph, and all that is said of the one holds of the other. What crosses between two
stages is one message: each output that is needed there, once.

Times are whole ticks, memory is bytes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.stage_graph import StageGraph

Groups = tuple[tuple[int, ...], ...]
"""The operators of every stage, in order."""
KINDS = 3
"""F, I and W: pass ``kind * K + stage`` of K stages, as in ``schedules/split_backward/pass_numbers.py``."""


class Cost(NamedTuple):
    """F, I and W of one micro-batch in ticks; bytes kept from F for I and W, bytes kept for W alone, and states."""

    forward: int
    input: int
    weight: int
    kept: int = 0
    left: int = 0
    state: int = 0

    @property
    def work(self) -> int:
        """All three passes."""
        return self.forward + self.input + self.weight


@dataclass(frozen=True)
class Graph:
    """Operators and the ticks that their outputs take from one rank to another, by source and target."""

    costs: tuple[Cost, ...]
    edges: Mapping[tuple[int, int], int]

    @cached_property
    def stages(self) -> StageGraph:
        """Return the stages with the stages that each needs, without ticks."""
        before: list[list[int]] = [[] for _ in self.costs]
        for source, target in sorted(self.edges):
            before[target].append(source)
        return StageGraph(tuple(map(tuple, before)))

    @cached_property
    def ways(self) -> StageChains:
        """Return the path of micro-batches through the stages."""
        return StageChains(len(self.costs), graph=self.stages)

    @cached_property
    def seconds(self) -> tuple[int, ...]:
        """Ticks of every pass by its number."""
        return tuple(cost[kind] for kind in range(KINDS) for cost in self.costs)

    @property
    def work(self) -> int:
        """Ticks of one micro-batch."""
        return sum(cost.work for cost in self.costs)

    def between(self, stage: int, other: int) -> int:
        """Ticks of a message, there or back."""
        return self.edges[min(stage, other), max(stage, other)]


def one_each(graph: Graph) -> Groups:
    """Every operator a stage."""
    return tuple((operator,) for operator in range(len(graph.costs)))


def in_order(graph: Graph, groups: Sequence[Sequence[int]]) -> Groups | None:
    """Sort the groups topologically; None where two need each other."""
    home = {operator: group for group, operators in enumerate(groups) for operator in operators}
    needs: dict[int, set[int]] = {group: set() for group in range(len(groups))}
    for source, target in graph.edges:
        if home[source] != home[target]:
            needs[home[target]].add(home[source])
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:
        return None
    return tuple(tuple(sorted(groups[group])) for group in order)


def merged(graph: Graph, groups: Groups) -> Graph:
    """Return the graph whose operators are the groups; they must be in order."""
    home = {operator: group for group, operators in enumerate(groups) for operator in operators}
    outputs: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for (source, target), ticks in graph.edges.items():
        if home[source] != home[target]:
            sent = outputs[home[source], home[target]]
            sent[source] = max(ticks, sent.get(source, 0))
    costs = tuple(Cost(*map(sum, zip(*(graph.costs[i] for i in group), strict=True))) for group in groups)
    return Graph(costs, {edge: sum(sent.values()) for edge, sent in outputs.items()})
