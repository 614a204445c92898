"""A unit of a virtual rank in one process: its part of whole tensors, and the codecs of its exchanges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits, UnitPlan
from meshwright.program.synchronisation.unit_legs import stretch_places, unit_shard, unit_shards
from meshwright.runtime.state.shard_pieces import places_of
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_shards import EncodedShards
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum

WIDE = torch.float64
CPU = torch.device("cpu")
Tensors = Mapping[str, torch.Tensor]


@dataclass
class VirtualUnit:
    """A unit of a virtual rank, with its codecs by entry."""

    program: Program
    rank: int
    plan: UnitPlan
    seed: int = 0
    _sums: dict[int, EncodedSum] = field(default_factory=dict)
    _shards: dict[tuple[int, str], EncodedShards] = field(default_factory=dict)
    _count: dict[int, int] = field(default_factory=dict)

    @cached_property
    def place(self) -> int:
        """The rank's index among the ranks of the unit's shards."""
        mesh, units = self.plan.layout.mesh, RankUnits(self.program, self.rank)
        return units.place_in(mesh.shard, self.plan.part) if self.plan.layout.parts > 1 else 0

    def encoded_sum(self, entry: int, ranks: int) -> EncodedSum:
        """Return the exchange of an entry over a replicated axis."""
        if entry not in self._sums:
            own = unit_shard(self.program, self.rank, self.plan)
            said = self.program.synchronise[entry].compress
            self._sums[entry] = EncodedSum(said, own, ranks, WIDE, CPU, self.seed)
        return self._sums[entry]

    def shards(self, entry: int, state: str) -> EncodedShards:
        """Return the exchange of an entry over an axis that shards the unit."""
        said = self.program.synchronise[entry].compress
        assert said is not None
        if (entry, state) not in self._shards:
            made = (unit_shards(self.plan), self.place, WIDE, CPU, self.seed)
            self._shards[entry, state] = EncodedShards(said, *made)
        return self._shards[entry, state]

    def key(self, entry: int, place: int) -> DrawKey:
        """Return the key of the entry's next exchange; ``place`` is the rank's in its group."""
        number = self._count[entry] = self._count.get(entry, -1) + 1
        return DrawKey(seed=self.seed, step=number, entry=entry, rank=place, exchange=number)

    def store(self, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """Write stretches of the own shard into the flat unit."""
        for place, part in zip(stretch_places(self.plan, self.place), parts, strict=True):
            flat[place] = part

    def flat_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of stretches of the own shard as flat units: (replica, element)."""
        found = torch.zeros(len(rows), self.plan.layout.size, dtype=WIDE)
        places = stretch_places(self.plan, self.place)
        for row, flat in zip(rows, found, strict=True):
            self.store(flat, row.split([place.stop - place.start for place in places]))
        return found

    def flat(self, tensors: Tensors) -> torch.Tensor:
        """Return the tensors as a rank of tensor parallelism holds them, flat and padded."""
        flat = torch.zeros(self.plan.layout.size, dtype=WIDE)
        for tensor in self.plan.layout.tensors:
            part = tensors[tensor.name].detach()[places_of(tensor.cuts, tensor.whole_shape)]
            local = torch.zeros(tensor.shape, dtype=WIDE)
            local[tuple(slice(0, n) for n in part.shape)] = part
            place = self.plan.layout.places[tensor.name]
            flat[place.start : place.stop] = local.flatten()
        return flat

    def put(self, flat: torch.Tensor, whole: Tensors) -> None:
        """Write the own shard of the flat unit into whole tensors."""
        tensors = {tensor.name: tensor for tensor in self.plan.layout.tensors}
        for name, of, _ in self.plan.layout.spans(self.place):
            tensor, place = tensors[name], self.plan.layout.places[name]
            here = places_of(tensor.cuts, tensor.whole_shape)
            local = torch.zeros(tensor.shape, dtype=WIDE)
            inner = tuple(slice(0, n) for n in whole[name][here].shape)
            local[inner] = whole[name][here]
            line = local.flatten()
            line[of] = flat[place.start + of.start : place.start + of.stop]
            whole[name][here] = line.view(tensor.shape)[inner]
