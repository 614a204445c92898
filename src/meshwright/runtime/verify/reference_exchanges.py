"""Train virtual islands side by side in one process, and exchange between them as a plan's ``synchronise`` says.

Every island has whole tensors, an optimizer, and its own sequences of each batch. Behind a step, every virtual rank
cuts its stretches out of its island's tensors; exchanges of a group run in this process, with the codecs of the
runtime; what they change goes back into the tensors. Anchors, outer optimizers and merging are written out here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.plans.synchronisation.outer_optimizer import Outer
from meshwright.plans.synchronisation.periods import LearningRates, Periods
from meshwright.plans.synchronisation.synchronisation import exchanged_between_steps
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits
from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.program.synchronisation.exchange_weights import DATA_AXES, exchange_weights, joined_axes
from meshwright.program.synchronisation.islands import islands
from meshwright.program.synchronisation.rank_exchanges import (
    ExchangeMessage,
    RankExchanges,
)
from meshwright.runtime.state.shard_pieces import places_of
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.leg import run_in_process
from meshwright.runtime.synchronisation.outer.outer_momentum import staleness_penalty

WIDE = torch.float64
Key = tuple[int, int, int]
"""Entry, fragment, number of the message."""
Values = Callable[[int, str, str], torch.Tensor]
"""Island, state and name to the whole tensor, which may be changed."""


@dataclass
class VirtualMessage:
    """A message of one virtual rank: its codec and anchor, and what has been sent and not applied.

    ``held`` is 1 where a tensor has an element, and 0 in the padding of its cut.
    """

    message: ExchangeMessage
    sum: EncodedSum
    anchor: torch.Tensor
    outer: dict[str, torch.Tensor]
    held: torch.Tensor
    sent: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    number: int = 0


@dataclass
class VirtualIslands:
    """The exchanges of all virtual ranks; ``values`` gives an island's whole tensors."""

    program: Program
    values: Values
    seed: int = 0
    rates: LearningRates | None = None

    def __post_init__(self) -> None:
        program, part = self.program, self.program.parts[0]
        self.entries = exchanged_between_steps(program.synchronise, program.loose)
        self.periods = {entry: Periods(program.synchronise[entry], self.rates) for entry in self.entries}
        self.replicas = tuple(part.grid.sizes[axis] for axis in DATA_AXES)
        self.island_of = {
            rank: number for number, ranks in enumerate(islands(part.grid, program.loose)) for rank in ranks
        }
        self.tensors: dict[int, dict[str, Tensor]] = {}
        self.messages: dict[tuple[int, Key], VirtualMessage] = {}
        self.labels: dict[tuple[int, int], torch.Tensor] = {}
        self.counts: dict[tuple[int, int], int] = {}
        for rank in range(program.parts.ranks):
            units = RankUnits(program, rank).distinct()
            self.tensors[rank] = {t.name: t for unit in units for t in unit.layout.tensors}
        for entry in self.entries:
            for fragment in range(self.periods[entry].count):
                self.labels[entry, fragment] = torch.zeros(self.replicas, dtype=torch.int64)
                self.counts[entry, fragment] = 0
                for rank in range(program.parts.ranks):
                    self._add(rank, entry, fragment)

    def _add(self, rank: int, entry: int, fragment: int) -> None:
        said = self.program.synchronise[entry]
        for number, message in enumerate(RankExchanges(self.program, rank).messages(entry, fragment)):
            ranks = len(self._group(message, rank))
            sums = EncodedSum(said.compress, message.stretches, ranks, WIDE, torch.device("cpu"), self.seed)
            anchor = self._cut(rank, message) if said.state == "parameter" else torch.zeros(0)
            outer = said.outer_in_full
            moments = {key: torch.zeros_like(anchor) for key in (outer.moments if outer else ())}
            held = self._held(rank, message)
            virtual = VirtualMessage(message, sums, anchor, moments, held)
            self.messages[rank, (entry, fragment, number)] = virtual

    @torch.no_grad()
    def after_step(self, step: int, labels: torch.Tensor) -> None:
        """Do what is due behind a step, whose labels are by (dp_replicate, dp_shard)."""
        for counted in self.labels.values():
            counted += labels
        ended: set[tuple[int, int]] = set()
        for entry in self.entries:
            periods = self.periods[entry]
            for fragment in range(periods.count):
                if periods.begins(step, fragment):
                    self._begin(entry, fragment, step, ended)
            for fragment in range(periods.count):
                empty = periods.ends_empty(step, fragment)
                if empty or periods.ends(step, fragment):
                    self._end(entry, fragment, empty=empty)
                    ended.add((entry, fragment))

    def _of(self, entry: int, fragment: int) -> Iterator[tuple[int, Key, VirtualMessage]]:
        for (rank, key), one in self.messages.items():
            if key[:2] == (entry, fragment):
                yield rank, key, one

    def _begin(self, entry: int, fragment: int, step: int, ended: set[tuple[int, int]]) -> None:
        joined, done = joined_axes(self.program, entry, fragment, ended), set[tuple[int, Key]]()
        for rank, key, one in list(self._of(entry, fragment)):
            group = self._group(one.message, rank)
            if (group[0], key) not in done:
                done.add((group[0], key))
                self._exchange(group, key, step, joined)
        self.labels[entry, fragment].zero_()
        self.counts[entry, fragment] += 1

    def _exchange(self, group: Sequence[int], key: Key, step: int, joined: frozenset[str]) -> None:
        entry, fragment, number = key
        said, legs, own = self.program.synchronise[entry], [], []
        for index, rank in enumerate(group):
            one, weights = self.messages[rank, key], self._weights(rank, key, joined)
            local = self._cut(rank, one.message)
            value = one.anchor - local if said.state == "parameter" else local
            draw = DrawKey(
                seed=self.seed,
                step=step,
                entry=entry,
                fragment=fragment,
                rank=index,
                exchange=self.counts[entry, fragment],
                place=number,
            )
            elements = [stretch.elements for stretch in one.message.stretches]
            legs.append(one.sum.legs(one.sum.begin(value.split(elements), weights, draw)))
            own.append(weights[index] * value)
        for rank, mean, mine in zip(group, run_in_process(legs), own, strict=True):
            self.messages[rank, key].sent.append((torch.cat(mean) * self.messages[rank, key].held, mine))

    def _weights(self, rank: int, key: Key, joined: frozenset[str]) -> list[float]:
        said, place = self.program.synchronise[key[0]], self.program.parts[0].grid.coordinates(rank)
        own = place["dp_replicate"], place["dp_shard"]
        labels = self.labels[key[0], key[1]].tolist()
        return exchange_weights(labels, said.axis, own, joined, equal=said.weigh == "equal")

    def _end(self, entry: int, fragment: int, *, empty: bool) -> None:
        said, found = self.program.synchronise[entry], []
        for rank, _, one in self._of(entry, fragment):
            local = self._cut(rank, one.message)
            change, mine = (None, None) if empty else one.sent.pop(0)
            if said.state == "parameter":
                if said.own == "fresh":
                    now = one.sent[-1][1]
                    change = now if change is None or mine is None else now + change - mine
                if change is not None:
                    one.number += 1
                    one.anchor = moved(said.outer_in_full, one.anchor, change, one.outer, one.number)
                target = one.anchor
            else:
                target = local if change is None else change
            found.append((rank, one.message, (1 - said.merge) * local + said.merge * target))
        for rank, message, values in found:  # ranks of an island have copies
            self._put(rank, message, values)

    def _group(self, message: ExchangeMessage, rank: int) -> tuple[int, ...]:
        return self.program.parts[message.part].mesh_with(message.axes).group_of(rank, message.axes)

    def _cut(self, rank: int, message: ExchangeMessage) -> torch.Tensor:
        """Return a copy of what a virtual rank has of a message, flat."""
        found = []
        for held in message.held:
            tensor = self.tensors[rank][held.tensor]
            whole = self.values(self.island_of[rank], message.state, tensor.name)
            flat = torch.zeros(tensor.shape, dtype=WIDE)
            part = whole[places_of(tensor.cuts, tensor.whole_shape)]
            flat[tuple(slice(0, n) for n in part.shape)] = part
            found.append(flat.flatten()[held.start : held.start + held.stretch.elements])
        return torch.cat(found)

    def _held(self, rank: int, message: ExchangeMessage) -> torch.Tensor:
        found = []
        for held in message.held:
            tensor = self.tensors[rank][held.tensor]
            flat = torch.zeros(tensor.shape, dtype=WIDE)
            flat[tuple(slice(0, n) for n in tensor.held_shape)] = 1
            found.append(flat.flatten()[held.start : held.start + held.stretch.elements])
        return torch.cat(found)

    def _put(self, rank: int, message: ExchangeMessage, values: torch.Tensor) -> None:
        """Write a virtual rank's values of a message into its island's tensors."""
        at = 0
        for held in message.held:
            tensor = self.tensors[rank][held.tensor]
            whole = self.values(self.island_of[rank], message.state, tensor.name)
            places = places_of(tensor.cuts, tensor.whole_shape)
            flat = torch.zeros(tensor.shape, dtype=WIDE)
            inner = tuple(slice(0, n) for n in whole[places].shape)
            flat[inner] = whole[places]
            line = flat.flatten()
            line[held.start : held.start + held.stretch.elements] = values[at : at + held.stretch.elements]
            at += held.stretch.elements
            whole[places] = line.view(tensor.shape)[inner]


def moved(
    outer: Outer | None,
    anchor: torch.Tensor,
    change: torch.Tensor,
    moments: Mapping[str, torch.Tensor],
    number: int,
) -> torch.Tensor:
    """Return the anchor after a step of an outer optimizer, written out; ``moments`` change."""
    if outer is None:
        return anchor - change
    if outer.sgd is not None:
        return anchor - outer.sgd.lr * change
    first = moments["outer_first"]
    if outer.nesterov is not None:
        beta, lr = outer.nesterov.momentum, outer.nesterov.lr
        first.copy_(beta * first + change)
        return anchor - lr * (change + beta * first)
    if outer.momentum is not None:
        said = outer.momentum
        if said.staleness:
            change = change / staleness_penalty(said.lr * first, change)
        first.copy_(said.momentum * first + change)
        if said.clip is not None:
            first.clamp_(-said.clip, said.clip)
        return anchor - said.lr * first
    assert outer.adam is not None
    (beta1, beta2), second = outer.adam.betas, moments["outer_second"]
    first.copy_(beta1 * first + (1 - beta1) * change)
    second.copy_(beta2 * second + (1 - beta2) * change.square())
    root = (second / (1 - beta2**number)).sqrt() + outer.adam.epsilon
    return anchor - outer.adam.lr * first / (1 - beta1**number) / root
