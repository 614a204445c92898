"""Exchanges between islands on an emulated rank: times in place of tensors, on the groups of a run's exchanges.

An exchange begins when the last island has encoded its values, and when the one before has ended: a stream of its own
carries one at a time while later steps compute. A rank that ends an exchange waits for it, then takes the time of the
update. Islands meet nowhere else. Due steps and the order of entries are those of a run.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

import torch

from meshwright.plans.synchronisation.periods import Periods
from meshwright.runtime.comm.communicator import Work
from meshwright.runtime.comm.process_groups import SYNCHRONISING
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import EmulatedCommunicator
from meshwright.runtime.emulation.emulation_result import Timed
from meshwright.runtime.emulation.modelled_durations import ExchangeTime, ModelledTimes
from meshwright.runtime.synchronisation.rank_exchange_steps import Synchroniser
from meshwright.schedules.action import Action, Kind

STREAM, CODEC, WAIT, UPDATE = "islands", "codec", "wait", "update"
"""The subjects of an exchange's records: its time on the stream, and the times in which it keeps its rank."""


@dataclass
class EnteredExchange:
    """An exchange on its way: ``stamp`` is the time at which the last island enters it, ``end_s`` its end if known."""

    entry: int
    seconds: float
    stamp: torch.Tensor
    work: Work | None = None
    end_s: float | None = None


@dataclass
class EmulatedSynchroniser(Synchroniser):
    """The exchanges of one emulated rank.

    ``free_s`` is the time at which the stream of exchanges is free, ``under_way`` its exchanges in order, ``begun``
    those of each entry and fragment that have not been applied. ``records`` are of all steps.
    """

    clock: Clock = field(kw_only=True)
    times: ModelledTimes = field(kw_only=True)
    free_s: float = 0.0
    under_way: deque[EnteredExchange] = field(default_factory=deque)
    begun: dict[tuple[int, int], deque[EnteredExchange]] = field(default_factory=lambda: defaultdict(deque))
    records: list[Timed] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.periods = {entry: Periods(self.plan.program.synchronise[entry]) for entry in self.entries}

    def _begin(self, entry: int, fragment: int) -> None:
        """Encode, and enter the exchange."""
        time, clock = self._time(entry, fragment), self.clock
        start = clock.work(time.codec_s)
        self._record("SYNC_BEGIN", entry, start, clock.now, CODEC)
        stamp = torch.tensor([clock.now], dtype=torch.float64)
        exchange = EnteredExchange(entry, time.exchange_s, stamp)
        if time.exchange_s:
            communicator, axes = self.plan.communicator, (self.plan.program.synchronise[entry].axis,)
            assert isinstance(communicator, EmulatedCommunicator)
            exchange.work = communicator.latest(stamp, axes, f"exchange of entry {entry}", SYNCHRONISING.kind)
            self.under_way.append(exchange)
        else:
            exchange.end_s = clock.now
        self.begun[entry, fragment].append(exchange)

    def _end(self, entry: int, fragment: int, *, empty: bool) -> None:
        """Wait for the oldest exchange of a fragment, and take the update's time."""
        clock = self.clock
        if not empty:
            exchange, before = self.begun[entry, fragment].popleft(), clock.now
            clock.wait_until(self._end_of(exchange))
            self._record("SYNC_END", entry, before, clock.now, WAIT)
        start = clock.work(self._time(entry, fragment).update_s)
        self._record("SYNC_END", entry, start, clock.now, UPDATE)

    def _end_of(self, exchange: EnteredExchange) -> float:
        """Return the end of an exchange, after ending those before it on the stream."""
        while exchange.end_s is None:
            first = self.under_way.popleft()
            if first.work is not None:
                first.work.wait()
            start = max(self.free_s, first.stamp.item())
            first.end_s = self.free_s = start + first.seconds
            self._record("SYNC_BEGIN", first.entry, start, first.end_s, STREAM)
        return exchange.end_s

    def _time(self, entry: int, fragment: int) -> ExchangeTime:
        return self.times.between_islands[entry, fragment][self.plan.pipeline_rank]

    def _record(self, kind: Kind, entry: int, start: float, end: float, about: str) -> None:
        self.records.append(Timed(Action(kind, entry), start, end, about))
