"""Reduce gradients as a plan's entries encode them inside a step, for virtual ranks in one process.

Every virtual rank starts with the gradients of its own replica's sequences; experts, with those of all replicas whose
tokens come to them. They are added up over axes in the order of the plan: over what shards the states, then over
replicas; without sharding over all axes without an entry first. Parameters that are gathered encoded are what passes
use, while the optimizer's stay exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.plans.synchronisation.synchronisation import combined_entry
from meshwright.program.pass_items import Collective
from meshwright.program.program import Program
from meshwright.program.rank_units.rank_units import RankUnits, UnitPlan
from meshwright.program.synchronisation.exact_entries import entries_by_axis
from meshwright.program.synchronisation.exchange_weights import DATA_AXES
from meshwright.program.synchronisation.islands import on_both_meshes
from meshwright.program.synchronisation.unit_legs import stretch_places
from meshwright.runtime.comm.process_groups import EXPERT_RANKS
from meshwright.runtime.synchronisation.codecs.codec import States
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.gathered_rows import gathered_rows
from meshwright.runtime.synchronisation.leg import Legs, run_in_process
from meshwright.runtime.synchronisation.participation import Participation
from meshwright.runtime.verify.reference_combination import combined
from meshwright.runtime.verify.reference_units import Tensors, VirtualUnit

Replica = tuple[int, int]
"""Indices along dp_replicate and dp_shard."""


@dataclass
class VirtualReductions:
    """The reductions of the virtual ranks of one island."""

    program: Program
    ranks: Sequence[int]
    seed: int = 0
    participation: Participation = field(default_factory=Participation)

    def __post_init__(self) -> None:
        program = self.program
        self.combined = combined_entry(program.synchronise)
        self.rows: dict[tuple[int, str], torch.Tensor] = {}
        self.numbers = {
            state: entries_by_axis(program.synchronise, program.loose, state)
            for state in ("gradient", "parameter")
        }
        self.units: dict[int, list[VirtualUnit]] = {}
        for rank in self.ranks:
            trained = (unit for unit in RankUnits(program, rank).distinct() if unit.trained)
            self.units[rank] = [VirtualUnit(program, rank, unit, self.seed) for unit in trained]

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
        shards = unit.shards(entry, "parameter")
        key = DrawKey(seed=self.seed, step=finished_steps, entry=entry, rank=unit.place)
        flat = unit.flat(tensors)
        spans = list(unit.plan.layout.spans(unit.place))
        numbers = shards.numbers[unit.place]
        for number, (name, of, _) in zip(numbers, spans, strict=True):
            start = unit.plan.layout.places[name].start
            here = slice(start + of.start, start + of.stop)
            flat[here] = shards.roundtrip(number, flat[here], key)
        unit.put(flat, found)

    def reduce(self, gradients: Mapping[Replica, Tensors]) -> dict[str, torch.Tensor]:
        """Return the sum or combination of all replicas' gradients, as the plan's codecs leave it."""
        self.rows.clear()
        total = {name: torch.zeros_like(tensor) for name, tensor in next(iter(gradients.values())).items()}
        values: dict[tuple[int, str], torch.Tensor] = {}
        for rank in self.ranks:
            for unit in self.units[rank]:
                values[rank, unit.plan.name] = self._contribution(rank, unit, gradients)
        self._scatter_and_sum(values)
        said = None if self.combined is None else self.program.synchronise[self.combined]
        if said is None or not said.takes_rows:
            self._put_all(values, total)
            return total
        replicas, factor = self.program.group_size((said.axis,)), self.participation.row_factor
        rows = []
        for place in self.participation.arrived(replicas):
            rows.append({name: torch.zeros_like(tensor) for name, tensor in total.items()})
            self._put_all({key: factor(replicas) * of[place] for key, of in self.rows.items()}, rows[-1])
        return combined(said, rows)

    def _put_all(self, values: Mapping[tuple[int, str], torch.Tensor], total: Tensors) -> None:
        """Write every rank's own shard of flat units into whole tensors."""
        for rank in self.ranks:
            for unit in self.units[rank]:
                unit.put(values[rank, unit.plan.name], total)

    def _contribution(
        self, rank: int, unit: VirtualUnit, gradients: Mapping[Replica, Tensors]
    ) -> torch.Tensor:
        """Return what a rank computes of a unit, flat."""
        return torch.stack([unit.flat(gradients[of]) for of in self._computed(rank, unit.plan)]).sum(0)

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
            shards = unit.shards(entry, "gradient")
            flat = values[rank, unit.plan.name]
            stretches = [
                flat[place]
                for part in range(unit.plan.layout.parts)
                for place in stretch_places(unit.plan, part)
            ]
            item = Collective("all-to-all", (), 0, "")
            legs.append(shards.reduce(item, stretches, unit.key(entry, unit.place)))
        for unit, rank, sums in zip(units, group, run_in_process(legs), strict=True):
            unit.store(values[rank, unit.plan.name], sums)

    def _sums(
        self,
        units: Sequence[VirtualUnit],
        group: Sequence[int],
        entry: int,
        values: dict[tuple[int, str], torch.Tensor],
    ) -> None:
        legs: list[Legs[list[torch.Tensor] | torch.Tensor]] = []
        kept: dict[int, tuple[EncodedSum, States]] = {}
        for index, (unit, rank) in enumerate(zip(units, group, strict=True)):
            sums, weights = unit.encoded_sum(entry, len(group)), self.participation.of(len(group))
            flat = values[rank, unit.plan.name] * bool(weights[index])
            stretches = [flat[place] for place in stretch_places(unit.plan, unit.place)]
            if not weights[index]:
                kept[index] = sums, sums.kept_by_late()
            pending = sums.begin(stretches, weights, unit.key(entry, index))
            rows = self.program.synchronise[entry].takes_rows
            legs.append(gathered_rows(sums, pending) if rows else sums.legs(pending))
        for unit, rank, found in zip(units, group, run_in_process(legs), strict=True):
            if isinstance(found, list):
                unit.store(values[rank, unit.plan.name], found)
            else:
                self.rows[rank, unit.plan.name] = unit.flat_rows(found)
        for sums, states in kept.values():
            for name, state in states.items():
                sums.states()[name].copy_(state)
