"""States of exchanges between replicas (``synchronise``) as stored stretches.

=====================================  ============================================================================
state of a stretch                     content
=====================================  ============================================================================
``anchor``                             the anchor that stands for the model (``exported_entry``)
``synchronise.ENTRY.STATE.KEY``        another anchor, moments of the outer optimizer, residuals, momenta, factors
``synchronise.ENTRY.STATE.mean.0``     results that arrive in a later step, oldest first; ``own.0``: own changes
``synchronise.ENTRY.FRAGMENT``         labels since the last exchange, and how many have begun
``gradient.ENTRY…``                    the same of gradients that travel encoded
=====================================  ============================================================================

A checkpoint waits for results that are on their way, so their number follows from the step. What all ranks of an
exchange have alike is in the file of the first; islands save what differs.
"""

from collections.abc import Iterator

import torch

from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.program.synchronisation.model_anchor import exported_entry
from meshwright.program.synchronisation.rank_exchanges import ExchangeMessage
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.state.shard_owner import first_owner
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.synchronisation.message_exchange import MessageExchange
from meshwright.runtime.synchronisation.unit_codecs import UnitCodecs

ANCHOR, ENTRY, GRADIENT = "anchor", "synchronise", "gradient"
STEPS = "steps"
"""The name of the numbers of steps of outer optimizers."""
FACTOR = "factor"
"""The codec state that all ranks of an exchange have alike."""


def exchange_states(rank: Rank) -> Iterator[Stretch]:
    """Yield all that exchanges of a rank keep; nothing of plans that do not synchronise."""
    for (entry, fragment), of in rank.interpreter.states.synchroniser.fragments.items():
        of_fragment = f"{ENTRY}.{entry}.{fragment}"
        yield _numbers(of_fragment, "labels", of.labels, 0)
        yield _numbers(of_fragment, "count", of.count, 0)
        for message, exchange in zip(of.messages, of.exchanges, strict=True):
            yield from _MessageStates(rank, entry, fragment, message, exchange).stretches()
    for unit in rank.plan.trained_units:
        if unit.codecs is not None:
            yield from _unit_states(rank, unit, unit.codecs)


class _MessageStates:
    """The states of one message of a fragment."""

    def __init__(
        self, rank: Rank, entry: int, fragment: int, message: ExchangeMessage, exchange: MessageExchange
    ) -> None:
        self.rank, self.message, self.exchange = rank, message, exchange
        self.name = f"{ENTRY}.{entry}.{message.state}"
        self.kind = f"{fragment}.{message.axes[0]}.{message.part}"
        self.exported = entry == exported_entry(rank.job.program)
        units = {unit.name: unit for unit in rank.plan.trained_units}
        self.tensors = [_tensor(units[held.unit], held.tensor) for held in message.held]
        self.own = [self._owner(units[held.unit], n, ()) for n, held in enumerate(message.held)]
        alike = (exchange.entry.axis,)
        self.first = [self._owner(units[held.unit], n, alike) for n, held in enumerate(message.held)]

    def stretches(self) -> Iterator[Stretch]:
        """Yield them all."""
        exchange = self.exchange
        anchored = self.own if exchange.fresh else self.first
        yield _numbers(f"{self.name}.{self.kind}", STEPS, exchange.number, self.rank.place.rank)
        if exchange.anchor is not None:
            name = ANCHOR if self.exported else f"{self.name}.{ANCHOR}"
            yield from self._flat(name, exchange.anchor, anchored)
        for key, moment in exchange.moments.items():
            yield from self._flat(f"{self.name}.{key}", moment, anchored)
        for number, begun in enumerate(exchange.begun):
            assert begun.mean is not None, "an exchange is still running"
            yield from self._flat(f"{self.name}.mean.{number}", begun.mean, self.first)
            if begun.own is not None:
                yield from self._flat(f"{self.name}.own.{number}", begun.own, self.own)
        numbers = {held.stretch.name: number for number, held in enumerate(self.message.held)}
        for key, memory in exchange.sum.states().items():
            kind, _, place = key.partition(".")
            number = numbers[place]
            owners = self.first if kind == FACTOR else self.own
            start = self.message.held[number].start
            yield Stretch(
                f"{self.name}.{kind}", self.tensors[number], start, owners[number], (memory.view(-1),)
            )

    def _flat(self, state: str, flat: torch.Tensor, owners: list[int]) -> Iterator[Stretch]:
        """Yield the parts of a vector that has the message's stretches one behind the other."""
        parts = flat.split([held.stretch.elements for held in self.message.held])
        for held, tensor, owner, part in zip(self.message.held, self.tensors, owners, parts, strict=True):
            yield Stretch(state, tensor, held.start, owner, (part,))

    def _owner(self, unit: Unit, number: int, alike: tuple[str, ...]) -> int:
        program, rank, part = self.rank.job.program, self.rank.place.rank, unit.communicator.part
        apart = tuple(axis for axis in program.loose if axis not in alike)
        return first_owner(program, rank, unit.layout, self.tensors[number], part, apart)


def _unit_states(rank: Rank, unit: Unit, codecs: UnitCodecs) -> Iterator[Stretch]:
    """Yield the states of a unit's encoded gradients, of which each rank keeps its own."""
    own = rank.place.rank
    for state, found in codecs.states_of_sums().items():
        for key, memory in found.items():
            kind, _, place = key.partition(".")
            name, _, rest = place.partition("/")
            start = int(rest.rpartition("/")[2])
            tensor = _tensor(unit, name)
            yield Stretch(f"{GRADIENT}.{state}.{kind}", tensor, start, own, (memory.view(-1),))
    for entry, count in codecs.counts.items():
        yield _numbers(f"{GRADIENT}.{entry}.count", unit.name, count, own)


def _tensor(unit: Unit, name: str) -> Tensor:
    return next(tensor for tensor in unit.layout.tensors if tensor.name == name)


def _numbers(state: str, name: str, memory: torch.Tensor, owner: int) -> Stretch:
    flat = memory.view(-1)
    tensor = Tensor(name, (len(flat),), (len(flat),), (), False, False, trained=False)
    return Stretch(state, tensor, 0, owner, (flat,))
