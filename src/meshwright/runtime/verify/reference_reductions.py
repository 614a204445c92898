"""Reduce gradients as a plan's entries encode them inside a step, for virtual ranks in one process.

Every virtual rank starts with the gradients of its own replica's sequences; experts, with those of all replicas whose
tokens come to them. They are added up over axes in the order of the plan: over what shards the states, then over
replicas; without sharding over all axes without an entry first. Parameters that are gathered encoded are what passes
use, while the optimizer's stay exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.program.pass_items import Collective
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits, UnitPlan
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.exchange_weights import DATA_AXES
from meshwright.program.synchronisation.islands import on_both_meshes
from meshwright.program.synchronisation.unit_legs import stretch_places, unit_shard, unit_shards
from meshwright.runtime.comm.process_groups import EXPERT_RANKS
from meshwright.runtime.state.shard_pieces import places_of
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_shards import EncodedShards
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.leg import run_in_process

WIDE = torch.float64
CPU = torch.device("cpu")
Tensors = Mapping[str, torch.Tensor]
Replica = tuple[int, int]
"""Indices along dp_replicate and dp_shard."""


@dataclass
class VirtualUnit:
    """A unit of a virtual rank, with its codecs by entry."""

    plan: UnitPlan
    place: int
    sums: dict[int, EncodedSum] = field(default_factory=dict)
    shards: dict[tuple[int, str], EncodedShards] = field(default_factory=dict)
    count: dict[int, int] = field(default_factory=dict)


@dataclass
class VirtualReductions:
    """The reductions of the virtual ranks of one island."""

    program: Program
    ranks: Sequence[int]
    seed: int = 0

    def __post_init__(self) -> None:
        program = self.program
        self.numbers = {
            state: entries_by_axis(program.synchronise, program.loose, state)
            for state in ("gradient", "parameter")
        }
        self.units: dict[int, list[VirtualUnit]] = {}
        for rank in self.ranks:
            held = RankUnits(program, rank)
            self.units[rank] = [
                VirtualUnit(
                    unit, held.place_in(unit.layout.mesh.shard, unit.part) if unit.layout.parts > 1 else 0
                )
                for unit in held.distinct()
                if unit.trained
            ]

    def replica_of(self, rank: int) -> Replica:
        """Return the replica whose sequences a rank has."""
        place = self.program.parts[0].grid.coordinates(rank)
        return place[DATA_AXES[0]], place[DATA_AXES[1]]

    def seen(self, tensors: Tensors, finished_steps: int) -> dict[str, torch.Tensor]:
        """Return the parameters that passes use."""
        found = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        for rank in self.ranks:
            for unit in self.units[rank]:
                entry = self._entry(unit.plan.layout.mesh.shard, "parameter")
                if entry is not None and unit.plan.layout.parts > 1:
                    self._encode_shard(rank, unit, entry, tensors, found, finished_steps)
        return found

    def _encode_shard(
        self,
        rank: int,
        unit: VirtualUnit,
        entry: int,
        tensors: Tensors,
        found: Mapping[str, torch.Tensor],
        finished_steps: int,
    ) -> None:
        """Replace a rank's own shard of a unit by what others decode."""
        shards = self._shards(unit, entry, "parameter")
        key = DrawKey(seed=self.seed, step=finished_steps, entry=entry, rank=unit.place)
        flat = _flat(unit.plan, tensors)
        spans = list(unit.plan.layout.spans(unit.place))
        numbers = shards.numbers[unit.place]
        for number, (name, of, _) in zip(numbers, spans, strict=True):
            start = unit.plan.layout.places[name].start
            here = slice(start + of.start, start + of.stop)
            flat[here] = shards.roundtrip(number, flat[here], key)
        _put(unit.plan, flat, found, [(name, of) for name, of, _ in spans])

    def reduce(self, gradients: Mapping[Replica, Tensors]) -> dict[str, torch.Tensor]:
        """Return the sum of all replicas' gradients, as the plan's codecs leave it."""
        total = {name: torch.zeros_like(tensor) for name, tensor in next(iter(gradients.values())).items()}
        values: dict[tuple[int, str], torch.Tensor] = {}
        for rank in self.ranks:
            for unit in self.units[rank]:
                values[rank, unit.plan.name] = self._contribution(rank, unit.plan, gradients)
        self._scatter_and_sum(values)
        for rank in self.ranks:
            for unit in self.units[rank]:
                spans = [(name, of) for name, of, _ in unit.plan.layout.spans(unit.place)]
                _put(unit.plan, values[rank, unit.plan.name], total, spans)
        return total

    def _contribution(self, rank: int, unit: UnitPlan, gradients: Mapping[Replica, Tensors]) -> torch.Tensor:
        """Return what a rank computes of a unit, flat."""
        return torch.stack([_flat(unit, gradients[of]) for of in self._computed(rank, unit)]).sum(0)

    def _computed(self, rank: int, unit: UnitPlan) -> tuple[Replica, ...]:
        """Return the replicas whose gradients of a unit a rank computes."""
        if unit.kind != "experts":
            return (self.replica_of(rank),)
        grid = self.program.parts[unit.part].expert_grid
        return tuple(sorted({self.replica_of(member) for member in grid.group_of(rank, EXPERT_RANKS)}))

    def _scatter_and_sum(self, values: dict[tuple[int, str], torch.Tensor]) -> None:
        """Run every unit's exchanges; ``values`` are flat units, of which a rank's own shard counts at the end."""
        done: set[tuple[str, int, tuple[str, ...], int]] = set()
        for stage in range(max(len(self._stages(u.plan)) for of in self.units.values() for u in of)):
            for rank in self.ranks:
                for unit in self.units[rank]:
                    stages = self._stages(unit.plan)
                    if stage >= len(stages):
                        continue
                    axes, entry, cut = stages[stage]
                    mesh = self.program.parts[unit.plan.part].mesh_with(axes)
                    group = mesh.group_of(rank, axes)
                    if (unit.plan.name, stage, axes, group[0]) in done or len(group) == 1:
                        continue
                    done.add((unit.plan.name, stage, axes, group[0]))
                    self._exchange(unit.plan.name, group, entry, cut, values)

    def _stages(self, unit: UnitPlan) -> list[tuple[tuple[str, ...], int | None, bool]]:
        """Return the exchanges of a unit: axes, entry, and whether its shards go to their owners."""
        mesh, loose = unit.layout.mesh, on_both_meshes(self.program.loose)
        replica = tuple(axis for axis in mesh.replica if axis not in loose)
        if unit.layout.parts > 1:
            first = [(mesh.shard, self._entry(mesh.shard, "gradient"), True)]
        else:
            first, replica = [], tuple(axis for axis in (*mesh.shard, *mesh.replica) if axis not in loose)
        exact = tuple(axis for axis in replica if self._entry((axis,), "gradient") is None)
        encoded = [axis for axis in replica if axis not in exact]
        rest = [(exact, None, False)] if exact else []
        return [*first, *rest, *(((axis,), self._entry((axis,), "gradient"), False) for axis in encoded)]

    def _entry(self, axes: Sequence[str], state: str) -> int | None:
        return next((self.numbers[state][axis] for axis in axes if axis in self.numbers[state]), None)

    def _exchange(
        self,
        name: str,
        group: Sequence[int],
        entry: int | None,
        cut: bool,
        values: dict[tuple[int, str], torch.Tensor],
    ) -> None:
        units = [next(u for u in self.units[rank] if u.plan.name == name) for rank in group]
        if entry is None:
            distinct = {
                self._computed(rank, unit.plan): rank for rank, unit in zip(group, units, strict=True)
            }
            total = torch.stack([values[rank, name] for rank in distinct.values()]).sum(0)
            for rank in group:
                values[rank, name] = total.clone()
            return
        runs = self._scatters if cut else self._sums
        runs(units, list(group), entry, values)

    def _scatters(
        self,
        units: Sequence[VirtualUnit],
        group: Sequence[int],
        entry: int,
        values: dict[tuple[int, str], torch.Tensor],
    ) -> None:
        legs = []
        for unit, rank in zip(units, group, strict=True):
            shards = self._shards(unit, entry, "gradient")
            flat = values[rank, unit.plan.name]
            stretches = [
                flat[place]
                for part in range(unit.plan.layout.parts)
                for place in stretch_places(unit.plan, part)
            ]
            item = Collective("all-to-all", (), 0, "")
            legs.append(shards.reduce(item, stretches, self._key(unit, entry, unit.place)))
        for unit, rank, sums in zip(units, group, run_in_process(legs), strict=True):
            _store(unit, values[rank, unit.plan.name], sums)

    def _sums(
        self,
        units: Sequence[VirtualUnit],
        group: Sequence[int],
        entry: int,
        values: dict[tuple[int, str], torch.Tensor],
    ) -> None:
        legs = []
        for index, (unit, rank) in enumerate(zip(units, group, strict=True)):
            said = self.program.synchronise[entry].compress
            own = unit_shard(self.program, rank, unit.plan)
            sums = unit.sums.setdefault(entry, EncodedSum(said, own, len(group), WIDE, CPU, self.seed))
            flat = values[rank, unit.plan.name]
            stretches = [flat[place] for place in stretch_places(unit.plan, unit.place)]
            legs.append(sums.legs(sums.begin(stretches, [1.0] * len(group), self._key(unit, entry, index))))
        for unit, rank, found in zip(units, group, run_in_process(legs), strict=True):
            _store(unit, values[rank, unit.plan.name], found)

    def _key(self, unit: VirtualUnit, entry: int, place: int) -> DrawKey:
        number = unit.count[entry] = unit.count.get(entry, -1) + 1
        return DrawKey(seed=self.seed, step=number, entry=entry, rank=place, exchange=number)

    def _shards(self, unit: VirtualUnit, entry: int, state: str) -> EncodedShards:
        said = self.program.synchronise[entry].compress
        assert said is not None
        if (entry, state) not in unit.shards:
            made = (unit_shards(unit.plan), unit.place, WIDE, CPU, self.seed)
            unit.shards[entry, state] = EncodedShards(said, *made)
        return unit.shards[entry, state]


def _store(unit: VirtualUnit, flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    for place, part in zip(stretch_places(unit.plan, unit.place), parts, strict=True):
        flat[place] = part


def _flat(unit: UnitPlan, tensors: Tensors) -> torch.Tensor:
    """Return a unit's tensors as a rank of tensor parallelism holds them, flat and padded."""
    flat = torch.zeros(unit.layout.size, dtype=WIDE)
    for tensor in unit.layout.tensors:
        part = tensors[tensor.name].detach()[places_of(tensor.cuts, tensor.whole_shape)]
        local = torch.zeros(tensor.shape, dtype=WIDE)
        local[tuple(slice(0, n) for n in part.shape)] = part
        place = unit.layout.places[tensor.name]
        flat[place.start : place.stop] = local.flatten()
    return flat


def _put(unit: UnitPlan, flat: torch.Tensor, whole: Tensors, spans: Sequence[tuple[str, slice]]) -> None:
    """Write spans of a flat unit into whole tensors."""
    tensors = {tensor.name: tensor for tensor in unit.layout.tensors}
    for name, of in spans:
        tensor, place = tensors[name], unit.layout.places[name]
        here = places_of(tensor.cuts, tensor.whole_shape)
        local = torch.zeros(tensor.shape, dtype=WIDE)
        inner = tuple(slice(0, n) for n in whole[name][here].shape)
        local[inner] = whole[name][here]
        line = local.flatten()
        line[of] = flat[place.start + of.start : place.start + of.stop]
        whole[name][here] = line.view(tensor.shape)[inner]
