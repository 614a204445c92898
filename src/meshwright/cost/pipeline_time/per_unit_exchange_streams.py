"""Per-unit gathers and reductions during a schedule, for closed forms: their number, order and timing.

The lists are those of the lowered Program without messages, which change no order on a rank. All stages have something
to exchange there; plans of an array that have not, because no other rank shares their states, exchange in no time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.program.model_states.per_unit_gather_and_reduce import (
    NEED_PARAMETERS,
    UnitRule,
    exchange_units,
)
from meshwright.schedules.action import Action, ActionLists, Kind
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.execution_order import Step
from meshwright.schedules.stage_times import StageTimes

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Operation = Callable[[Any, Any], Any]
EXCHANGES: tuple[Kind, ...] = ("GATHER", "REDUCE")


class UnitExchangeTimes(NamedTuple):
    """Seconds of every stage's gather and reduction, (n, K) each, the overlapped kinds, and their slow-down."""

    gather: Array
    reduce: Array
    overlapped: frozenset[Kind]
    slowdown: float

    def take(self, rows: NDArray[np.int64]) -> "UnitExchangeTimes":
        """Return the plans at ``rows``."""
        return self._replace(gather=self.gather[rows], reduce=self.reduce[rows])

    def streams(self, ranks: int, zero: Any, larger: Operation, smaller: Operation) -> "UnitExchangeStreams":
        """Return the streams of all ranks before anything has run."""
        return UnitExchangeStreams(
            self.overlapped, self.slowdown, zero, larger, smaller, [zero] * ranks, [zero] * ranks
        )


@dataclass
class UnitExchangeStreams:
    """The data-parallel streams of all ranks while lists are played, as ``simulate/simulator.py`` plays them.

    ``free`` is when each ends what it has, ``reduced`` when its last reduction ends; times are floats or arrays.
    """

    overlapped: frozenset[Kind]
    slowdown: float
    zero: Any
    larger: Operation
    smaller: Operation
    free: list[Any]
    reduced: list[Any]

    def exchange(self, kind: Kind, rank: int, seconds: Any, clock: list[Any]) -> Any:
        """Run an exchange; its end. One that takes no time is none, and waits for nothing."""
        takes_part = seconds > 0
        if kind == "REDUCE":
            clock[rank] = self.larger(clock[rank], takes_part * self.reduced[rank])
        end = self.larger(clock[rank], takes_part * self.free[rank]) + seconds
        self.free[rank] = self.larger(self.free[rank], end)
        if kind == "REDUCE":
            self.reduced[rank] = self.larger(self.reduced[rank], end)
        if kind not in self.overlapped:
            clock[rank] = end
        return end

    def slowed(self, rank: int, start: Any, seconds: Any) -> Any:
        """Return the length of a pass that overlaps the stream's remaining work."""
        left = self.larger(self.free[rank] - start, self.zero)
        return seconds + self.slowdown * self.smaller(seconds, left)


@lru_cache(maxsize=256)
def unit_lists(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    chunks: int,
    times: StageTimes | None,
    overlapped: frozenset[Kind],
) -> tuple[tuple[Action, ...], ...]:
    """One list of passes and exchanges per rank."""
    size = schedule.unit_size(ranks, micro_batches, chunks)
    assert size is not None, "the schedule has no units"
    lists = []
    for actions in schedule.lists(ranks, micro_batches, chunks, times):
        mine = frozenset(action.stage for action in actions if action.stage is not None)
        rule = UnitRule(size=size, gathered=mine, reduced=mine, overlapped=overlapped)
        lists.append(tuple(exchange_units(actions, rule)))
    return tuple(lists)


def with_exchanges(steps: Sequence[Step], lists: ActionLists) -> Iterator[Step]:
    """Yield the passes with the lists' exchanges in between; a pass also needs its stage's last gather."""
    todo = [iter(actions) for actions in lists]
    place: list[int] = []
    gathered: dict[int, int] = {}
    number = 0
    for step in steps:
        for exchange in _until_pass(todo[step.rank]):
            if exchange.kind == "GATHER":
                gathered[exchange.stage] = number
            yield exchange._replace(rank=step.rank)
            number += 1
        needed = tuple((place[source], crosses) for source, crosses in step.sources)
        if step.kind in NEED_PARAMETERS:
            needed += ((gathered[step.stage], False),)
        place.append(number)
        yield step._replace(sources=needed)
        number += 1
    for rank, rest in enumerate(todo):
        yield from (exchange._replace(rank=rank) for exchange in _until_pass(rest))


def _until_pass(actions: Iterator[Action]) -> Iterator[Step]:
    """Yield the exchanges up to the next pass, which is consumed too."""
    for action in actions:
        if action.micro_batch is not None:
            return
        if action.kind in EXCHANGES and action.stage is not None:
            yield Step(action.stage, -1, action.kind, ())
