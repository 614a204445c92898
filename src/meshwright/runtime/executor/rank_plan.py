"""Build what one rank holds and executes from the Program and the model: units of parameters, and blocks with kernels.

A rank's parts are its stages and, if the vocabulary is spread, a share of it, which counts as a stage after all others.
A unit is a block if parameters are gathered layer by layer and a stage otherwise; experts and frozen parameters have
units of their own. Each
block of a stage gets the Program's items for its passes and a kernel for each operator; equal blocks differ in their
layer's number, on which rotary embeddings and windows may depend.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch

from meshwright.model.graph import ENCODER_KINDS, Block, ModelGraph
from meshwright.model.named_tensors import named_buffers
from meshwright.model.numerics import Numerics
from meshwright.model.operators.blocks import EMBEDDING_TABLE
from meshwright.model.operators.encoder_layers import encoder_architecture
from meshwright.program.activation_bytes import SavedTensors, saved_tensors_by_operator
from meshwright.program.lowering.pass_bodies import Shared
from meshwright.program.pass_items import Collective
from meshwright.program.program import Program, rank_items
from meshwright.program.program_parts import Part
from meshwright.program.rank_units.local_matrices import NamedBlocks
from meshwright.program.rank_units.rank_units import Place, RankUnits, UnitPlan, named_blocks
from meshwright.program.rank_units.unit_layout import (
    UnitLayout,
)
from meshwright.program.reshard import Reshard, Way
from meshwright.program.synchronisation.encoded_program import encodes_inside_steps
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.comm.host_link import HostLink
from meshwright.runtime.comm.reshard_exchange import RankExchange, rank_exchange
from meshwright.runtime.executor.block_plan import BlockPlan
from meshwright.runtime.executor.router_statistics import RouterStatistics
from meshwright.runtime.kernels import kernel_of
from meshwright.runtime.kernels.constant_tables import Tables
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.frozen_unit import FrozenUnit
from meshwright.runtime.state.on_host.gradient_offload import GradientLots
from meshwright.runtime.state.on_host.offloaded_unit import Hosting, OffloadedUnit
from meshwright.runtime.state.on_host.shard_split import ShareCut
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.synchronisation.unit_codecs import UnitCodecs

AnyUnit = Unit | FrozenUnit


@dataclass(frozen=True)
class RankPlan:
    """The places of each part of this rank in forward order, their block plans, and the units of each place.

    A place has up to four units: trained parameters, trained ones of experts, which lie on their own mesh, and frozen
    ones of either. ``buffers`` are stored with the weights of these places, get no gradient, and are whole on every
    rank. ``hosting`` is None where all states are on the device.
    """

    program: Program
    communicator: Communicator
    precision: Precision
    hidden: int
    pipeline_rank: int
    places: Mapping[int, tuple[Place, ...]]
    blocks: Mapping[int, tuple[BlockPlan, ...]]
    units: Mapping[int, tuple[tuple[AnyUnit, ...], ...]]
    unit_of: Mapping[str, AnyUnit]
    buffers: Mapping[str, torch.Tensor]
    tally: RouterStatistics = field(default_factory=RouterStatistics)
    hosting: Hosting | None = None
    exchanges: dict[tuple[int, int, Way], RankExchange] = field(default_factory=dict)

    def reshard_exchange(self, reshard: Reshard, way: Way) -> RankExchange:
        """Return this rank's share of a change of layout inside a stage."""
        key = reshard.source, reshard.target, way
        if key not in self.exchanges:
            self.exchanges[key] = rank_exchange(self.program.parts, reshard, way, self.communicator.rank)
        return self.exchanges[key]

    @cached_property
    def host(self) -> HostLink:
        """The connection to this rank's host."""
        return self.hosting.link if self.hosting else HostLink(self.communicator.device)

    @property
    def offloaded_units(self) -> tuple[OffloadedUnit, ...]:
        """The units with states on the host."""
        return tuple(unit for unit in self.all_units if isinstance(unit, OffloadedUnit))

    @property
    def stages(self) -> tuple[int, ...]:
        """Indices of this rank's stages, in forward order."""
        return tuple(part for part in self.places if part < len(self.program.stages))

    @property
    def share(self) -> int:
        """The index of this rank's share of a spread vocabulary."""
        return len(self.program.stages) + self.pipeline_rank

    @property
    def named_blocks(self) -> NamedBlocks:
        """The rank's blocks by the names of their places, in forward order."""
        return named_blocks([place for of_part in self.places.values() for place in of_part], self.program)

    def units_of(self, stage: int) -> tuple[AnyUnit, ...]:
        """Return the distinct units of a stage or share."""
        return tuple({id(unit): unit for units in self.units[stage] for unit in units}.values())

    def trained_units_of(self, stage: int) -> tuple[Unit, ...]:
        """Return the distinct units of a stage or share that have gradients."""
        return trained(self.units_of(stage))

    def part_of_layer(self, layer: int) -> Part:
        """Return the part that a layer of this rank belongs to."""
        places = (place for of_section in self.places.values() for place in of_section)
        return self.program.parts.of(next(place.block for place in places if place.layer == layer))

    def message_buffer(self, part: int = 0, *, whole: bool = False) -> torch.Tensor:
        """Allocate a buffer for one message to a block of a part: (sequence, batch, hidden).

        The sequence is cut over cp, and over tp with sequence parallelism; ``whole``: tp does not cut it.
        """
        of = self.program.parts[part]
        shape, cut = of.shape, of.mode.sequence_parallel and not whole
        tokens = int(shape.seq_len) // int(shape.cp) // (int(shape.tp) if cut else 1)
        size = (tokens, int(of.shape_of(self.communicator.rank).micro_batch), self.hidden)
        return torch.empty(size, dtype=self.precision.compute, device=self.communicator.device)

    @cached_property
    def shares_table(self) -> bool:
        """True if several of this rank's stages use the same token table."""
        return sum(any(map(self._reads_table, self.program.stages[s].blocks)) for s in self.stages) > 1

    def _reads_table(self, block: int) -> bool:
        operators = self.program.blocks[block].operators
        return any(p.name == EMBEDDING_TABLE for op in operators for p in (*op.parameters, *op.borrows))

    @cached_property
    def shared(self) -> Shared | None:
        """The blocks of embedding and head, if they share a table on this rank."""
        mine = {block for stage in self.stages for block in self.program.stages[stage].blocks}
        ends = {self.program.blocks[block].kind: block for block in mine}
        if "embed" not in ends or "head" not in ends:
            return None
        operators = self.program.blocks[ends["head"]].operators
        tied = any(p.name == EMBEDDING_TABLE for op in operators for p in op.parameters)
        return (ends["embed"], ends["head"]) if tied else None

    @property
    def all_units(self) -> tuple[AnyUnit, ...]:
        """The distinct units of the rank."""
        return tuple(unit for part in self.places for unit in self.units_of(part))

    @property
    def trained_units(self) -> tuple[Unit, ...]:
        """The distinct units of the rank that have gradients."""
        return trained(self.all_units)


def trained(units: Iterable[AnyUnit]) -> tuple[Unit, ...]:
    """Return the units that have gradients."""
    return tuple(unit for unit in units if not isinstance(unit, FrozenUnit))


def dealt(
    units: Sequence[AnyUnit], items: Sequence[Collective]
) -> list[tuple[AnyUnit, tuple[Collective, ...]]]:
    """Return each unit with the gather of its shards; the Program lists gathers in the order of the units."""
    found, left = [], list(items)
    for number, unit in enumerate(units):
        own = own_exchanges(unit, left)
        if any(_on_same_mesh(unit, later) for later in units[number + 1 :]):
            own = own[: unit.layout.parts > 1]
        found.append((unit, own))
        left = [item for item in left if item not in own]
    assert not left, (units, items)
    return found


def own_exchanges(unit: AnyUnit, items: Sequence[Collective]) -> tuple[Collective, ...]:
    """Return the collectives that run over axes of a unit's mesh, in its part of the Program."""
    return unit.layout.over_own_mesh([item for item in items if item.part == unit.communicator.part_index])


def _on_same_mesh(unit: AnyUnit, other: AnyUnit) -> bool:
    same_part = unit.communicator.part_index == other.communicator.part_index
    return same_part and unit.layout.mesh == other.layout.mesh


def rank_plan(
    program: Program,
    model: ModelGraph,
    numerics: Numerics,
    communicator: Communicator,
    precision: Precision,
    seed: int = 0,
) -> RankPlan:
    """Return the plan of one rank; its parameters are still zero. ``seed`` is that of its kernels' random choices."""
    pipeline_rank = communicator.pipeline_rank
    held = RankUnits(program, communicator.rank)
    places, hosting = held.places, _hosting(program, communicator)
    made = {id(unit): _unit(unit, program, communicator, precision, hosting) for unit in held.distinct()}
    units = {
        section: tuple(tuple(made[id(unit)] for unit in of_place) for of_place in of)
        for section, of in held.of_places.items()
    }
    unit_of = {t.name: unit for unit in made.values() for t in unit.layout.tensors}
    routing = numerics.routing
    tally = RouterStatistics(routing.correction_speed if routing else 0.0, named_buffers(model))
    encoder = encoder_architecture(model.architecture)
    tables, buffers = [Tables() for _ in program.parts], _buffers(model, places, communicator, precision)
    blocks = {
        stage: tuple(
            _block_plan(
                place,
                program,
                Setting(
                    architecture=arch,
                    numerics=arch.numerics,
                    shape=program.parts.of(place.block).shape_of(communicator.rank),
                    communicator=communicator.on(program.parts.of_blocks[place.block]),
                    precision=precision,
                    sequence_parallel=program.parts.of(place.block).mode.sequence_parallel,
                    tables=tables[program.parts.of_blocks[place.block]],
                    unit_name=place.name,
                    layer=0 if of_encoder else place.layer,
                    buffers=buffers,
                    tally=tally,
                    seed=seed,
                ),
            )
            for place in of_stage
            for of_encoder in (program.blocks[place.block].kind in ENCODER_KINDS,)
            for arch in (encoder if of_encoder else model.architecture,)
        )
        for stage, of_stage in places.items()
    }
    return RankPlan(
        program,
        communicator,
        precision,
        model.architecture.hidden,
        pipeline_rank,
        places,
        blocks,
        units,
        unit_of,
        buffers,
        tally,
        hosting,
    )


def _hosting(program: Program, communicator: Communicator) -> Hosting | None:
    """Return how the states of this rank are divided between device and host; None if none is on the host."""
    states = program.host_states
    if states is None:
        return None
    link, leaves = HostLink(communicator.device), bool(states.leave)
    return Hosting(
        lots=GradientLots(link, communicator, program.stack.gradient_communication_bytes),
        states=ShareCut(states.shares.optimizer),
        parameters=ShareCut(states.shares.parameters),
        leaves=leaves,
        in_passes=leaves and program.parts.only.mode.reduce == "per-micro-batch",
        keeps_shard=states.sharding == "zero3",
        width=program.stack.parameter_bytes,
        gradient_width=program.stack.gradient_bytes,
    )


def _buffers(
    model: ModelGraph,
    places: Mapping[int, Sequence[Place]],
    communicator: Communicator,
    precision: Precision,
) -> dict[str, torch.Tensor]:
    here = {place.layer for of_part in places.values() for place in of_part}
    return {
        name: torch.zeros(shape, dtype=precision.statistic, device=communicator.device)
        for name, shape in named_buffers(model).items()
        if layer_of(name) in here
    }


def layer_of(name: str) -> int:
    """Return the number of the layer that a tensor belongs to, from its full name (``layers.3.mlp.up``)."""
    return int(name.split(".")[1])


def _block_plan(place: Place, program: Program, setting: Setting) -> BlockPlan:
    block = program.blocks[place.block]
    return BlockPlan(
        block=block,
        kernels={op.name: kernel_of(op, block, setting) for op in block.operators},
        items={
            kind: rank_items(program, setting.communicator.rank, place.block, kind)
            for of, kind in program.block_items
            if of == place.block
        },
        keeps=_kept(block, program),
    )


def _kept(block: Block, program: Program) -> Mapping[str, SavedTensors]:
    """Return what each operator keeps; nothing where no backward pass follows."""
    if program.stack.optimizer.forward_only:
        return {op.name: SavedTensors(inputs=False, inner=False) for op in block.operators}
    return saved_tensors_by_operator(block)


def _unit(
    plan: UnitPlan,
    program: Program,
    communicator: Communicator,
    precision: Precision,
    hosting: Hosting | None,
) -> AnyUnit:
    """Return a unit of the rank; its parameters are still zero."""
    of_part = communicator.on(plan.part)
    if not plan.trained:
        return FrozenUnit(plan.name, plan.layout, of_part, precision)
    kind: Callable[..., Unit] = Unit
    if hosting is not None:
        kind = partial(OffloadedUnit, hosting=hosting, blocks=_blocks(plan.layout, plan.places))
    part = of_part.part
    return kind(
        name=plan.name,
        layout=plan.layout,
        communicator=of_part,
        precision=precision,
        sequence_parallel=part.mode.sequence_parallel,
        accumulates=part.mode.reduce != "per-step",
        gradient_width=program.stack.gradient_communication_bytes,
        parameter_width=program.stack.parameter_wire_bytes,
        stays_whole=hosting is None and part.sharding != "zero3",
        codecs=UnitCodecs(program, plan, of_part, precision) if encodes_inside_steps(program) else None,
    )


def _blocks(layout: UnitLayout, places: Sequence[Place]) -> list[list[str]]:
    """Return the names of each place's parameters; the last one has a table of another stage."""
    names: list[list[str]] = [[] for _ in places]
    for tensor in layout.tensors:
        at = (place for place, of in enumerate(places) if tensor.name.startswith(f"{of.name}."))
        names[next(at, len(places) - 1)].append(tensor.name)
    return names
