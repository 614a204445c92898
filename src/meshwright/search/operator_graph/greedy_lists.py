"""Greedy action lists: every free rank runs the pass that can begin first, I before F, and W instead of idling.

The rules are those of ``schedules/split_backward/greedy_order.py``, for stages that need several others and hold
unequally much. A rank keeps so much memory free that the micro-batch which it begins can go through all its stages:
then the oldest micro-batch can always go on, whatever branches wait for each other, and no play ends early.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from meshwright.schedules.split_backward.greedy_order import WaitingRule
from meshwright.schedules.split_backward.shortest_lists import PATIENCES
from meshwright.search.operator_graph.graph import KINDS, Graph
from meshwright.search.operator_graph.problem import Task, change

NAMES = ("F", "I", "W")
NEVER = 2**62


class Style(NamedTuple):
    """A greedy list scheduler's waiting rule, and its priorities of stages that could begin together."""

    patience: WaitingRule
    first: tuple[float, ...]


class Lists(NamedTuple):
    """Ticks from the first start to the last end, and passes of every rank."""

    step: int
    orders: list[list[int]]


def usual_styles(graph: Graph) -> list[Style]:
    """Ways to play: the later stage first, as patient as schedules of chains are tried."""
    later = tuple(float(stage) for stage in range(len(graph.costs)))
    return [Style(patience, later) for patience in PATIENCES]


def free_bytes(graph: Graph, placement: Sequence[int], ranks: int, memory: int | None) -> list[int] | None:
    """Bytes for micro-batches on every rank; None where one is too full for a single micro-batch."""
    if memory is None:
        return [NEVER] * ranks
    left, kept = [memory] * ranks, [0] * ranks
    for rank, cost in zip(placement, graph.costs, strict=True):
        left[rank] -= cost.state
        kept[rank] += cost.kept
    return left if all(a >= b for a, b in zip(left, kept, strict=True)) else None


def usual_plays(graph: Graph, placement: Sequence[int], task: Task) -> Iterator[Lists]:
    """Yield the lists of every usual style; none where a rank's memory does not suffice."""
    free = free_bytes(graph, placement, task.ranks, task.memory)
    if free is not None:
        for style in usual_styles(graph):
            yield greedy_lists(graph, placement, free, task.micro_batches, style)


def greedy_lists(
    graph: Graph, placement: Sequence[int], room_of: Sequence[int], micro_batches: int, style: Style
) -> Lists:
    """All passes of all micro-batches; ``room_of`` is what ``free_bytes`` found."""
    game = _Game(graph, placement, room_of, micro_batches, style)
    game.run_all()
    return Lists(max(game.clock), game.orders)


class _Game:
    def __init__(
        self, graph: Graph, placement: Sequence[int], room_of: Sequence[int], total: int, style: Style
    ) -> None:
        stages, ranks = len(graph.costs), range(len(room_of))
        self.stages, self.total, self.style, self.free = stages, total, style, list(room_of)
        self.seconds, self.kept = graph.seconds, [cost.kept for cost in graph.costs]
        self.change = [change(name, cost) for name in NAMES for cost in graph.costs]
        self.rank = [*placement] * KINDS
        self.mine = [[s for s in range(stages) if placement[s] == rank] for rank in ranks]
        self.needs = needs_of(graph, placement)
        self.served: list[list[int]] = [[] for _ in self.needs]
        for code, needed in enumerate(self.needs):
            for source, _ in needed:
                self.served[source].append(code)
        self.ends: list[list[int]] = [[] for _ in self.needs]
        self.ready = [0 if not needed else NEVER for needed in self.needs]
        self.clock = [0 for _ in ranks]
        self.orders: list[list[int]] = [[] for _ in ranks]

    def run_all(self) -> None:
        """Run passes until all are done, always the one that begins first."""
        choices = [self._choice(rank) for rank in range(len(self.mine))]
        for _ in range(len(self.needs) * self.total):
            start, code = min(choices)
            assert start < NEVER, "the game ended early"
            for rank in self._run(code, start):
                choices[rank] = self._choice(rank)

    def _run(self, code: int, start: int) -> set[int]:
        """One pass; returns the ranks that may go on otherwise now."""
        rank = self.rank[code]
        self.clock[rank] = start + self.seconds[code]
        self.ends[code].append(self.clock[rank])
        self.free[rank] -= self.change[code]
        self.orders[rank].append(code)
        changed = {rank}
        for other in (code, *self.served[code]):
            self.ready[other] = self._ready(other)
            changed.add(self.rank[other])
        return changed

    def _ready(self, code: int) -> int:
        """Return the tick at which the next pass of a kind and stage has its inputs."""
        number, ready = len(self.ends[code]), 0
        if number == self.total:
            return NEVER
        for source, delay in self.needs[code]:
            ends = self.ends[source]
            if len(ends) <= number:
                return NEVER
            ready = max(ready, ends[number] + delay)
        return ready

    def _fits(self, rank: int, stage: int) -> bool:
        """Return true if after an F the rank has room for the F of its other stages for that micro-batch."""
        number, free = len(self.ends[stage]), self.free[rank] - self.kept[stage]
        for other in self.mine[rank]:
            if other != stage and len(self.ends[other]) <= number:
                free -= self.kept[other]
        return free >= 0

    def _choice(self, rank: int) -> tuple[int, int]:
        """Start and pass."""
        now, ready, stages = self.clock[rank], self.ready, self.stages
        (for_weight, for_input), first = self.style
        best, start, code = (float(NEVER), 0, 0.0), NEVER, -1
        for stage in self.mine[rank]:
            found = ready[stages + stage]
            if found < NEVER:
                at = max(found, now)
                key = (at - for_input * self.seconds[stage], 0, -first[stage])
                if key < best:
                    best, start, code = key, at, stages + stage
            found = ready[stage]
            if found < NEVER:
                at = max(found, now)
                key = (at, 1, -first[stage])
                if key < best and self._fits(rank, stage):
                    best, start, code = key, at, stage
        for weight in (2 * stages + stage for stage in self.mine[rank]):
            if ready[weight] <= now and start > now + for_weight * self.seconds[weight]:
                return now, weight
        return start, code


def needs_of(graph: Graph, placement: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Return, for every pass number, the passes of the same micro-batch that it needs and their message delays."""
    stages, found = len(graph.costs), list[list[tuple[int, int]]]()
    for kind, stage in ((kind, stage) for kind in range(KINDS) for stage in range(stages)):
        if kind == 2:
            found.append([(stages + stage, 0)])
            continue
        others = graph.stages.behind[stage] if kind else graph.stages.before[stage]
        away = [graph.between(stage, o) if placement[o] != placement[stage] else 0 for o in others]
        needed = [(kind * stages + o, delay) for o, delay in zip(others, away, strict=True)]
        found.append(needed or ([(stage, 0)] if kind else []))
    return found
