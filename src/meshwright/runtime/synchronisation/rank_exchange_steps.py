"""Run the exchanges between islands that are due behind a step: SYNC_BEGIN and SYNC_END of every entry.

Fragments and due steps are those of ``plans/synchronisation``; what a rank sends, and its weight, those of
``program/synchronisation``. Labels are counted since the fragment's last exchange began: every rank knows the whole
batch, so weights need no communication.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from meshwright.plans.synchronisation.periods import LearningRates, Periods
from meshwright.plans.synchronisation.synchronisation import exchanged_between_steps
from meshwright.program.synchronisation.exchange_weights import DATA_AXES, exchange_weights, joined_axes
from meshwright.program.synchronisation.rank_exchanges import (
    ExchangeMessage,
    HeldStretch,
    RankExchanges,
)
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.comm.process_groups import SYNCHRONISING
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.state.parameter_update import refresh
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.group_legs import AloneTransport, GroupTransport
from meshwright.runtime.synchronisation.message_exchange import MessageExchange
from meshwright.runtime.synchronisation.participation import Participation
from meshwright.schedules.action import Action


@dataclass
class FragmentExchanges:
    """One fragment of an entry: its messages, labels since its last exchange began, and how many have begun."""

    messages: tuple[ExchangeMessage, ...]
    exchanges: list[MessageExchange]
    labels: torch.Tensor
    count: torch.Tensor


@dataclass
class Synchroniser:
    """The exchanges of one rank."""

    plan: RankPlan
    optimizer: Optimizer
    seed: int = 0
    periods: dict[int, Periods] = field(default_factory=dict)
    fragments: dict[tuple[int, int], FragmentExchanges] = field(default_factory=dict)
    ended: set[tuple[int, int]] = field(default_factory=set)
    participation: Participation = field(default_factory=Participation)

    def __post_init__(self) -> None:
        program = self.plan.program
        self.entries = exchanged_between_steps(program.synchronise, program.loose)
        self._units = {unit.name: unit for unit in self.plan.trained_units}
        if self.entries:
            part = program.parts[0]
            place = part.grid.coordinates(self.plan.communicator.rank)
            self.place = place["dp_replicate"], place["dp_shard"]
            self.replicas = tuple(part.grid.sizes[axis] for axis in DATA_AXES)

    def prepare(self, seed: int, rates: LearningRates | None) -> None:
        """Take the parameters as they are now for anchors; called when they have their first values.

        ``rates`` are the learning rates of the run, which rules of periods need.
        """
        self.seed = seed
        for unit in self.plan.trained_units:
            if unit.codecs is not None:
                unit.codecs.prepare(seed, lambda: self.optimizer.step, self.participation)
        for entry in self.entries:
            self.periods[entry] = Periods(self.plan.program.synchronise[entry], rates)
            for fragment in range(self.periods[entry].count):
                self.fragments[entry, fragment] = self._fragment(entry, fragment)

    def begin_step(self, labels: torch.Tensor | None) -> None:
        """Count the labels of a step, (dp_replicate, dp_shard)."""
        self.ended.clear()
        for of in self.fragments.values():
            assert labels is not None, "a plan that synchronises counts labels by replica"
            of.labels += labels

    def begin(self, action: Action) -> None:
        """SYNC_BEGIN: begin the exchanges of an entry that are due behind the step that was just taken."""
        entry, step = _entry_of(action), self.optimizer.step
        for fragment in range(self.periods[entry].count):
            if self.periods[entry].begins(step, fragment):
                self._begin(entry, fragment)

    def end(self, action: Action) -> None:
        """SYNC_END: apply the results that are due."""
        entry, step = _entry_of(action), self.optimizer.step
        periods, changed = self.periods[entry], False
        for fragment in range(periods.count):
            empty = periods.ends_empty(step, fragment)
            if empty or periods.ends(step, fragment):
                changed = True
                self._end(entry, fragment, empty=empty)
                self.ended.add((entry, fragment))
        if changed:
            refresh(self.plan)

    def settle(self) -> None:
        """Wait for the results of all exchanges; every rank calls it behind the same step."""
        for of in self.fragments.values():
            for exchange in of.exchanges:
                exchange.settle()

    def expect(self, step: int) -> None:
        """Make room for the results that are on their way behind so many steps, for a checkpoint to fill."""
        for (entry, fragment), of in self.fragments.items():
            periods = self.periods[entry]
            earliest = step - int(periods.entry.delay) + 1
            count = sum(periods.begins(begun, fragment) for begun in range(earliest, step + 1))
            for exchange in of.exchanges:
                exchange.expect(count)

    def _begin(self, entry: int, fragment: int) -> None:
        of, said = self.fragments[entry, fragment], self.plan.program.synchronise[entry]
        joined = joined_axes(self.plan.program, entry, fragment, self.ended)
        weights = exchange_weights(
            of.labels.tolist(), said.axis, self.place, joined, equal=said.weigh == "equal"
        )
        for number, (message, exchange) in enumerate(zip(of.messages, of.exchanges, strict=True)):
            communicator = self._communicator(message)
            ranks = communicator.ranks_of(message.axes)
            key = DrawKey(
                seed=self.seed,
                step=self.optimizer.step,
                entry=entry,
                fragment=fragment,
                rank=ranks.index(communicator.rank),
                exchange=int(of.count),
                place=number,
            )
            alone = len(ranks) == 1
            transport = AloneTransport() if alone else GroupTransport(communicator, message.collectives)
            exchange.begin(self.local(message), weights, key, transport)
        of.labels.zero_()
        of.count += 1

    def _end(self, entry: int, fragment: int, *, empty: bool) -> None:
        """Apply the oldest exchange of a fragment; ``empty``: none was begun a period before."""
        of = self.fragments[entry, fragment]
        for message, exchange in zip(of.messages, of.exchanges, strict=True):
            self.set_local(message, exchange.end(self.local(message), empty=empty))

    def _fragment(self, entry: int, fragment: int) -> FragmentExchanges:
        messages = RankExchanges(self.plan.program, self.plan.communicator.rank).messages(entry, fragment)
        zeros = torch.zeros(self.replicas, dtype=torch.int64)
        exchanges = [self._exchange(entry, message) for message in messages]
        return FragmentExchanges(messages, exchanges, zeros, torch.zeros(1, dtype=torch.int64))

    def _exchange(self, entry: int, message: ExchangeMessage) -> MessageExchange:
        said, communicator = self.plan.program.synchronise[entry], self._communicator(message)
        master, home = self.plan.precision.master, communicator.device
        keeps = torch.device("cpu") if said.keep == "host" else home
        ranks = len(communicator.ranks_of(message.axes))
        sums = EncodedSum(said.compress, message.stretches, ranks, master, home, self.seed)
        anchor = self.local(message).to(keeps, copy=True) if message.state == "parameter" else None
        outer = said.outer_in_full
        moments = {}
        if anchor is not None and outer is not None:
            moments = {key: torch.zeros_like(anchor) for key in outer.moments}
        elements = [one.stretch.elements for one in message.held]
        number = torch.zeros(1, dtype=torch.int64)
        return MessageExchange(
            said, sums, elements, anchor, moments, number, padding_of(message, self._units)
        )

    def _communicator(self, message: ExchangeMessage) -> Communicator:
        return self.plan.communicator.on(message.part).aside(SYNCHRONISING)

    def local(self, message: ExchangeMessage) -> torch.Tensor:
        """Return this rank's values of a message, flat."""
        return torch.cat([self._memory(message.state, held) for held in message.held])

    def set_local(self, message: ExchangeMessage, values: torch.Tensor) -> None:
        """Replace this rank's values of a message."""
        parts = values.split([held.stretch.elements for held in message.held])
        for held, part in zip(message.held, parts, strict=True):
            self._memory(message.state, held).copy_(part)

    def _memory(self, state: str, held: HeldStretch) -> torch.Tensor:
        """Return the memory of a stretch of a state."""
        unit: Unit = self._units[held.unit]
        if state == "parameter":
            return unit.owned[held.shard]
        (moment,) = (one for one in self.optimizer.moments_at(unit, held.shard) if one.key == state)
        (memory,) = moment.memory
        return memory


def padding_of(message: ExchangeMessage, units: Mapping[str, Unit]) -> torch.Tensor | None:
    """Return true where a flat message has padding of a cut; None without any. ``units`` are by name."""
    found = []
    for held in message.held:
        unit = units[held.unit]
        tensor = next(t for t in unit.layout.tensors if t.name == held.tensor)
        padded = torch.ones(tensor.shape, dtype=torch.bool, device=unit.device)
        padded[tuple(slice(0, length) for length in tensor.held_shape)] = False
        found.append(padded.flatten()[held.start : held.start + held.stretch.elements])
    every = torch.cat(found)
    return every if bool(every.any()) else None


def _entry_of(action: Action) -> int:
    assert action.stage is not None
    return action.stage
