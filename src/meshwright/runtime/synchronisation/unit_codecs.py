"""The encoded exchanges of one unit inside a step: reductions of its gradients, and gathers of its parameters.

A reduction may combine the replicas' rows by a rule in place of their sum. Rules by element do so at once; what others
need, the ``rows``, stays until the products of all units are known (``state/gradient_combination.py``).

Random choices of a reduction follow from the number of the reduction, those of a gather from the optimizer's finished
steps: however often parameters are gathered for a step, they are the same.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.pass_items import Collective
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import UnitPlan
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.unit_legs import (
    stretch_places,
    unit_legs,
    unit_shard,
    unit_shards,
    whole_items,
)
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.precision import Precision
from meshwright.runtime.synchronisation.codecs.codec import States
from meshwright.runtime.synchronisation.combine import ELEMENT_RULES
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_shards import EncodedShards
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.gathered_rows import gathered_rows
from meshwright.runtime.synchronisation.group_legs import GroupTransport, LegWork
from meshwright.runtime.synchronisation.leg import Legs, Result
from meshwright.runtime.synchronisation.participation import Participation

Steps = Generator[LegWork, None, None]


@dataclass
class UnitCodecs:
    """The codecs of a unit, by entry; ``finished_steps`` are the optimizer's."""

    program: Program
    unit: UnitPlan
    communicator: Communicator
    precision: Precision
    seed: int = 0
    finished_steps: Callable[[], int] = lambda: 0
    sums: dict[int, EncodedSum] = field(default_factory=dict)
    shards: dict[tuple[int, str], EncodedShards] = field(default_factory=dict)
    counts: dict[int, torch.Tensor] = field(default_factory=dict)
    participation: Participation = field(default_factory=Participation)
    rows: torch.Tensor | None = None

    def __post_init__(self) -> None:
        rank = self.communicator.rank
        self.own_place = (
            self.communicator.place_in(self.unit.layout.mesh.shard) if self.unit.layout.parts > 1 else 0
        )
        self.own = [stretch.elements for stretch in unit_shard(self.program, rank, self.unit)]
        self.places = [
            place for part in range(self.unit.layout.parts) for place in stretch_places(self.unit, part)
        ]

    def prepare(
        self, seed: int, finished_steps: Callable[[], int], participation: Participation | None = None
    ) -> None:
        """Make the codecs of all entries that apply to the unit, so that their states exist."""
        self.seed, self.finished_steps = seed, finished_steps
        self.participation = participation or self.participation
        layout, program = self.unit.layout, self.program
        for state in ("gradient", "parameter"):
            for axis, entry in entries_by_axis(program.synchronise, program.loose, state).items():
                self._count(entry)
                if axis in layout.mesh.shard and layout.parts > 1:
                    self._shards(entry, state)
                elif axis in layout.mesh.axes and state == "gradient":
                    ranks = len(self.communicator.ranks_of((axis,)))
                    if ranks > 1:
                        self._sum(entry, ranks)

    def own_legs(self, items: Sequence[Collective]) -> tuple[Collective, ...]:
        """Return this rank's collectives of planned ones; their bytes are those of its own stretches."""
        return unit_legs(self.program, self.communicator.rank, self.unit, whole_items(self.unit, items))

    def sum(self, items: Sequence[Collective], shard: torch.Tensor) -> Steps:
        """Add up or combine a rank's shard over replicas, in place of an all-reduce. ``items``: the legs."""
        entry = _entry_of(items)
        ranks, said = self.communicator.ranks_of(items[0].axes), self.program.synchronise[entry]
        own = ranks.index(self.communicator.rank)
        key, weights = self._reduction_key(entry, own), self.participation.of(len(ranks))
        encoded, held = self._sum(entry, len(ranks)), sum(self.own)
        kept = encoded.kept_by_late() if not weights[own] else {}
        if not weights[own]:
            shard = shard.zero_()
        pending = encoded.begin(list(shard[:held].split(self.own)), list(weights), key)
        if said.takes_rows:
            rows = yield from self._run(gathered_rows(encoded, pending), items)
            self._combine(said, rows[self.participation.arrived(len(ranks))], len(ranks), shard)
        else:
            _fill(shard, (yield from self._run(encoded.legs(pending), items)))
        for state, values in kept.items():
            encoded.states()[state].copy_(values)

    def _combine(self, said: Synchronisation, rows: torch.Tensor, replicas: int, shard: torch.Tensor) -> None:
        """Replace a shard by the combination of rows, or keep the rows."""
        rows *= self.participation.row_factor(replicas)
        if said.combination in ELEMENT_RULES:
            combined = ELEMENT_RULES[said.combination](said.combination_options, rows)
            shard[: len(combined)] = combined
        else:
            self.rows = rows

    def scatter(self, item: Collective, gradient: torch.Tensor, shard: torch.Tensor) -> Steps:
        """Add up every shard on its owner, in place of a reduce-scatter. ``gradient``: that of the whole unit, flat."""
        entry = _entry_of([item])
        key = self._reduction_key(entry, self.own_place)
        stretches = [gradient[place] for place in self.places]
        _fill(
            shard,
            (yield from self._run(self._shards(entry, "gradient").reduce(item, stretches, key), [item])),
        )

    def gather(self, item: Collective, owned: torch.Tensor) -> Generator[LegWork, None, torch.Tensor]:
        """Return the whole unit as all ranks decode it, flat."""
        entry = _entry_of([item])
        key = DrawKey(seed=self.seed, step=self.finished_steps(), entry=entry, rank=self.own_place)
        values = owned[: sum(self.own)].split(self.own)
        found = yield from self._run(self._shards(entry, "parameter").gather(item, values, key), [item])
        flat = torch.zeros(
            self.unit.layout.size, dtype=self.precision.master, device=self.communicator.device
        )
        for place, part in zip(self.places, found, strict=True):
            flat[place] = part
        return flat

    def states_of_sums(self) -> dict[str, States]:
        """Return the live tensors that a checkpoint saves, by entry and state, and by name; restore them in place."""
        sums = {str(entry): of.states() for entry, of in self.sums.items()}
        return sums | {f"{entry}.{state}": of.states() for (entry, state), of in self.shards.items()}

    def _sum(self, entry: int, ranks: int) -> EncodedSum:
        if entry not in self.sums:
            stretches = unit_shard(self.program, self.communicator.rank, self.unit)
            made = (stretches, ranks, self.precision.master, self.communicator.device, self.seed)
            self.sums[entry] = EncodedSum(self.program.synchronise[entry].compress, *made)
        return self.sums[entry]

    def _shards(self, entry: int, state: str) -> EncodedShards:
        if (entry, state) not in self.shards:
            said = self.program.synchronise[entry].compress
            assert said is not None
            device = self.communicator.device
            made = (unit_shards(self.unit), self.own_place, self.precision.master, device, self.seed)
            self.shards[entry, state] = EncodedShards(said, *made)
        return self.shards[entry, state]

    def _count(self, entry: int) -> torch.Tensor:
        """Return the number of reductions so far."""
        return self.counts.setdefault(entry, torch.zeros(1, dtype=torch.int64))

    def _reduction_key(self, entry: int, place: int) -> DrawKey:
        number = int(self._count(entry))
        self._count(entry).add_(1)
        return DrawKey(seed=self.seed, step=number, entry=entry, rank=place, exchange=number)

    def _run(self, legs: Legs[Result], items: Sequence[Collective]) -> Generator[LegWork, None, Result]:
        """Run legs over the process group; each is yielded after it has started."""
        transport, received = GroupTransport(self.communicator, items), None
        while True:
            try:
                leg = next(legs) if received is None else legs.send(received)
            except StopIteration as stopped:
                result: Result = stopped.value
                return result
            work = LegWork(transport.start(leg))
            yield work
            received = work.result()


def _fill(shard: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """Copy parts into a shard, one behind the other; padding stays."""
    at = 0
    for part in parts:
        shard[at : at + len(part)] = part
        at += len(part)


def _entry_of(items: Sequence[Collective]) -> int:
    entry = items[0].entry
    assert entry is not None
    return entry
