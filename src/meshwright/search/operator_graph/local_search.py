"""Local search over the placement of stages on ranks and the style of their greedy lists.

A move takes a stage to another rank, swaps two stages, or changes what goes first or how long ranks wait; the lists of
what it leads to are played anew (``greedy_lists.py``). Moves that make the step no longer are kept, others with a
chance that falls as the search goes on (simulated annealing). All that is drawn comes from the seed.
"""

from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import NamedTuple

from meshwright.schedules.split_backward.shortest_lists import PATIENCES
from meshwright.search.operator_graph.graph import Groups, merged
from meshwright.search.operator_graph.greedy_lists import Lists, Style, free_bytes, greedy_lists, usual_styles
from meshwright.search.operator_graph.problem import RanksAndLists, Task

WARM = 0.02
"""A step that is so much longer is kept with probability 1/e at first."""
RESTART = 200
"""Moves without a shorter step before the search goes on from the best."""


class State(NamedTuple):
    """Ranks and style, and the lists that they lead to."""

    lists: Lists
    placement: tuple[int, ...]
    style: Style


class Walk:
    """A search from some placements; ``best`` is the best state that was met, None where no placement fits."""

    def __init__(self, task: Task, groups: Groups, starts: Sequence[tuple[int, ...]], seed: int) -> None:
        self.task, self.groups, self.graph = task, groups, merged(task.graph, groups)
        self.random = Random(seed)
        styles = usual_styles(self.graph)
        tried = [self._state(placement, style) for placement in starts for style in styles]
        self.best = min((state for state in tried if state), key=lambda s: s.lists.step, default=None)
        self.steps = 0

    def run(self, is_over: Callable[[], bool], bound: int) -> None:
        """Move until ``is_over()``, or until the step has reached its lower bound."""
        here, since = self.best, 0
        while here and self.best and self.best.lists.step > bound and not is_over():
            self.steps += 1
            since += 1
            other = self._state(*self._moved(here))
            if other is None:
                continue
            longer = other.lists.step / here.lists.step - 1
            warmth = WARM / (1 + since / RESTART * 9)
            if longer <= 0 or self.random.random() < exp(-longer / warmth):
                here = other
            if here.lists.step < self.best.lists.step:
                self.best, since = here, 0
            elif since >= RESTART:
                here, since = self.best, 0

    @property
    def answer(self) -> RanksAndLists | None:
        """The best state as an answer."""
        if not self.best:
            return None
        return RanksAndLists(self.task, self.groups, self.best.placement, self.best.lists.orders)

    def _state(self, placement: tuple[int, ...], style: Style) -> State | None:
        free = free_bytes(self.graph, placement, self.task.ranks, self.task.memory)
        if free is None:
            return None
        return State(
            greedy_lists(self.graph, placement, free, self.task.micro_batches, style), placement, style
        )

    def _moved(self, state: State) -> tuple[tuple[int, ...], Style]:
        draw, (patience, first), place = self.random, state.style, list(state.placement)
        stage, kind = draw.randrange(len(place)), draw.random()
        if kind < 0.35:
            place[stage] = draw.randrange(self.task.ranks)
        elif kind < 0.65:
            other = draw.randrange(len(place))
            place[stage], place[other] = place[other], place[stage]
        elif kind < 0.75:
            patience = draw.choice(PATIENCES)
        else:
            moved = list(first)
            moved[stage] += draw.gauss(0, len(place) / 2)
            first = tuple(moved)
        return tuple(place), Style(patience, first)
