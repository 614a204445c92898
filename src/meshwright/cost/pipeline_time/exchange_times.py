"""Gathers and reductions of states during a schedule, for closed forms: their seconds and their places in lists.

The lists are those of the lowered Program without messages, which change no order on a rank. All stages have something
to exchange there; plans of an array that have not, because no other rank shares their states, exchange in no time.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.program.lowering.step_collectives import around_passes
from meshwright.program.model_states.per_unit_gather_and_reduce import UnitRule, exchange_units
from meshwright.schedules.action import Action, ActionLists, Kind
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import StageTimes

Array = NDArray[np.float64]


class ExchangeTimes(NamedTuple):
    """Seconds of each stage's gather and reduction, (n, K), or (n, K + P) with shares of the vocabulary behind.

    ``overlapped`` are the kinds that overlap compute, which ``slowdown``, one for all plans or (n,), makes longer.
    ``blocks`` are the numbers of blocks of every stage and share; None where states are exchanged unit by unit, and not
    once a step.
    """

    gather: Array
    reduce: Array
    overlapped: frozenset[Kind]
    slowdown: Any
    blocks: tuple[int, ...] | None = None

    def take(self, rows: NDArray[np.int64]) -> "ExchangeTimes":
        """Return the plans at ``rows``."""
        slowdown = self.slowdown[rows] if np.ndim(self.slowdown) else self.slowdown
        return self._replace(gather=self.gather[rows], reduce=self.reduce[rows], slowdown=slowdown)

    def slowdown_of(self, row: int) -> float:
        """Return the overlap slow-down of one plan."""
        return float(self.slowdown[row] if np.ndim(self.slowdown) else self.slowdown)

    def inputs(self, row: int) -> tuple[Any, ...]:
        """Return all that the streams of one plan depend on, as one hashable value."""
        seconds = self.gather[row].tobytes(), self.reduce[row].tobytes()
        return *seconds, self.overlapped, self.slowdown_of(row), self.blocks

    @property
    def places(self) -> "ExchangePlaces":
        """Return the places of the exchanges in lists."""
        return ExchangePlaces(self.overlapped, self.blocks is None, bool(self.gather.any()))


class ExchangePlaces(NamedTuple):
    """The places of gathers and reductions in lists: unit by unit, or around the passes of a step.

    ``gathers`` is true if the step begins with any.
    """

    overlapped: frozenset[Kind]
    by_unit: bool
    gathers: bool

    def within(
        self, lists: ActionLists, size: int | None, stages: Iterable[Sequence[int]]
    ) -> list[list[Action]]:
        """Return lists with exchanges; units have ``size`` micro-batches.

        ``stages`` are those of every rank, in the order in which it gathers.
        """
        if self.by_unit:
            assert size is not None, "the schedule has no units"
            return [_unit_by_unit(actions, size, self.overlapped) for actions in lists]
        return [self._around(actions, mine) for actions, mine in zip(lists, stages, strict=True)]

    def _around(self, actions: Sequence[Action], stages: Sequence[int]) -> list[Action]:
        early = [Action("GATHER", stage) for stage in stages if self.gathers]
        after = {stage: [Action("REDUCE", stage)] for stage in stages}
        return around_passes(actions, early, after, overlapped="REDUCE" in self.overlapped)


def _unit_by_unit(actions: Sequence[Action], size: int, overlapped: frozenset[Kind]) -> list[Action]:
    mine = frozenset(action.stage for action in actions if action.stage is not None)
    return exchange_units(actions, UnitRule(size=size, gathered=mine, reduced=mine, overlapped=overlapped))


@lru_cache(maxsize=256)
def unit_lists(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    chunks: int,
    times: StageTimes | None,
    overlapped: frozenset[Kind],
) -> tuple[tuple[Action, ...], ...]:
    """One list of passes and exchanges of units per rank."""
    lists = schedule.lists(ranks, micro_batches, chunks, times)
    size = schedule.unit_size(ranks, micro_batches, chunks)
    return tuple(map(tuple, ExchangePlaces(overlapped, True, True).within(lists, size, ())))
