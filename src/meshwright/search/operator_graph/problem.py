"""The scheduling problem on an operator graph, and its answer: the order of passes on every rank.

The step is the time from the first start of all to the last end of all: ranks with branches of their own begin
together. Memory of a rank is the states of its operators and, from the start of F to the end of I, what F keeps for I;
to the end of W what only W needs. Micro-batches go through every stage in turn, which loses nothing
(``schedules/solve/constraint_programming.py`` has the proof, which looks at one need at a time).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from meshwright.errors import Problem
from meshwright.play.execution_order import DeadlockError
from meshwright.play.in_flight import held_change
from meshwright.schedules.action import Action
from meshwright.schedules.custom.check_lists import check_passes
from meshwright.schedules.custom.inferred_shape import Shape
from meshwright.schedules.split_backward.pass_numbers import Orders, numbered
from meshwright.schedules.timeline import Timeline, run
from meshwright.search.operator_graph.graph import Cost, Graph, Groups, merged

UNPLAYABLE = 2**62
"""Ticks of lists that can not run."""


@dataclass(frozen=True)
class Task:
    """Operators for P ranks of so many bytes each (None: any number), and M micro-batches."""

    graph: Graph
    ranks: int
    micro_batches: int
    memory: int | None = None


@dataclass(frozen=True)
class RanksAndLists:
    """Groups of operators as stages, the rank of every stage, and passes of every rank in order."""

    task: Task
    groups: Groups
    placement: tuple[int, ...]
    orders: Orders

    @cached_property
    def graph(self) -> Graph:
        """The stages."""
        return merged(self.task.graph, self.groups)

    @cached_property
    def lists(self) -> list[list[Action]]:
        """The passes with their micro-batches."""
        return numbered(self.orders, len(self.groups))

    @property
    def shape(self) -> Shape:
        """The pipeline that the lists are for."""
        return Shape(
            self.task.ranks, self.placement, self.graph.ways, (tuple(range(self.task.micro_batches)),)
        )

    @cached_property
    def timeline(self) -> Timeline:
        """The lists, played. Raises ``DeadlockError``."""
        return timed(self.graph, self.lists)

    @cached_property
    def step(self) -> int:
        """Ticks from the first start to the last end; ``UNPLAYABLE`` where ranks would wait for each other."""
        try:
            return round(self.timeline.latency)
        except DeadlockError:
            return UNPLAYABLE

    @cached_property
    def peaks(self) -> tuple[int, ...]:
        """The most bytes that each rank holds."""
        return tuple(
            max(levels(actions, self.graph.costs), default=0) + state
            for actions, state in zip(self.lists, self.states, strict=True)
        )

    @property
    def states(self) -> list[int]:
        """Bytes of the states of every rank."""
        held = [0] * self.task.ranks
        for stage, rank in enumerate(self.placement):
            held[rank] += self.graph.costs[stage].state
        return held

    @property
    def fits(self) -> bool:
        """Return true if no rank holds more bytes than the task allows."""
        return self.task.memory is None or max(self.peaks) <= self.task.memory

    def problems(self) -> list[Problem]:
        """Everything that is wrong with the lists."""
        return check_passes(self.lists, self.shape, lambda: list(self._over()))

    def _over(self) -> Iterator[Problem]:
        limit = self.task.memory
        for rank, peak in enumerate(self.peaks):
            if limit is not None and peak > limit:
                rule = f"rank {rank} holds {peak} bytes > {limit}, the limit"
                yield Problem(f"lists.{rank}", peak, rule, "W and B before more F, or fewer operators")


def timed(graph: Graph, lists: Sequence[Sequence[Action]]) -> Timeline:
    """Simulate lists with the durations of their stages. Raise ``DeadlockError``."""
    return run(
        lists, lambda action: _ticks(graph.costs[action.stage or 0], action), graph.between, graph.ways
    )


def _ticks(cost: Cost, action: Action) -> int:
    return {"F": cost.forward, "I": cost.input, "W": cost.weight, "B": cost.input + cost.weight}[action.kind]


def levels(actions: Sequence[Action], costs: Sequence[Cost]) -> list[int]:
    """Bytes that one rank holds of micro-batches after each of its passes."""
    return list(accumulate(change(action.kind, costs[action.stage or 0]) for action in actions))


def change(kind: str, cost: Cost) -> int:
    """Bytes that a pass takes, or gives back."""
    return held_change(kind, cost.kept, cost.left)
