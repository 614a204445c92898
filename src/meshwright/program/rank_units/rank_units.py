"""List what one rank holds: the places of its stages, and the units in which their parameters are kept. Pure.

A rank's sections are its stages and, if the vocabulary is spread, a share of it. A unit is a block if parameters are
gathered layer by layer, and all blocks of a part in a section otherwise; experts and frozen parameters have units of
their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Literal

from meshwright.model.named_tensors import ENCODER_END, TOKEN_TABLE
from meshwright.model.operators.blocks import EMBEDDING_TABLE
from meshwright.model.operators.operator_types import LowRank, Operator, Parameter
from meshwright.program.model_states.base_changes import CHANGE_AXES, replicas_of
from meshwright.program.model_states.hidden_matrices import owned_whole
from meshwright.program.model_states.state_elements import EXPERT_MESH, OWN_MESH
from meshwright.program.program import Program, Stage, table_is_apart
from meshwright.program.program_parts import Part
from meshwright.program.rank_units.local_matrices import NamedBlocks, local_matrices, with_owners
from meshwright.program.rank_units.unit_layout import (
    Tensor,
    UnitLayout,
    local_tensor,
    part_of_stack,
    unit_layout,
)

UnitKind = Literal["dense", "experts", "frozen", "frozen experts"]
KINDS: tuple[UnitKind, ...] = ("dense", "experts", "frozen", "frozen experts")
SUFFIXES = {"dense": "", "experts": " experts", "frozen": " base", "frozen experts": " experts base"}


@dataclass(frozen=True)
class Place:
    """A block of a stage: its index in the model, its name (``layers.3``), and the decoder layer's number.

    The number is None for embedding, encoder and head.
    """

    block: int
    name: str
    layer: int | None


@dataclass(frozen=True)
class UnitPlan:
    """A unit of a rank: its parameters in one flat buffer, and the places that they belong to."""

    name: str
    kind: UnitKind
    part: int
    layout: UnitLayout
    places: tuple[Place, ...]

    @property
    def trained(self) -> bool:
        """Its parameters have gradients."""
        return self.kind in ("dense", "experts")


@dataclass(frozen=True)
class RankUnits:
    """The places and units of a rank."""

    program: Program
    rank: int

    @cached_property
    def pipeline_rank(self) -> int:
        """The rank's position in the pipeline."""
        return self.program.parts.pipeline_rank(self.rank)

    @cached_property
    def places(self) -> Mapping[int, tuple[Place, ...]]:
        """The places of each section of the rank, in forward order."""
        program = self.program
        shares = tuple(share for share in program.shares if share.rank == self.pipeline_rank)
        stages = program.stages_of(self.pipeline_rank)
        return {section.index: section_places(section, program) for section in stages + shares}

    @cached_property
    def of_places(self) -> Mapping[int, tuple[tuple[UnitPlan, ...], ...]]:
        """The units of each place of each section: one for all places of a part unless it gathers layer by layer."""
        found: dict[int, tuple[tuple[UnitPlan, ...], ...]] = {}
        held: set[str] = set()
        for section, places in self.places.items():
            found[section] = self._section(section, places, held)
        return found

    def distinct(self) -> Iterator[UnitPlan]:
        """Yield the units of the rank, each once."""
        every = (unit for of in self.of_places.values() for units in of for unit in units)
        yield from {id(unit): unit for unit in every}.values()

    def place_in(self, axes: tuple[str, ...], part: int) -> int:
        """Return the rank's index in its group over axes of a part."""
        return self.program.parts[part].mesh_with(axes).group_of(self.rank, axes).index(self.rank)

    def _section(
        self, section: int, places: Sequence[Place], held: set[str]
    ) -> tuple[tuple[UnitPlan, ...], ...]:
        program = self.program
        found: dict[int, tuple[UnitPlan, ...]] = {}
        of_parts = {program.parts.of_blocks[place.block]: None for place in places}
        name = f"stage {section}" if section < len(program.stages) else "share"
        for index in of_parts:
            here = [place for place in places if program.parts.of_blocks[place.block] == index]
            own = name if len(of_parts) == 1 else f"{name} {program.parts[index].name}"
            by_layer = program.parts[index].mode.gather == "per-layer"
            for group in [[place] for place in here] if by_layer else [here]:
                units = tuple(self._units(group[0].name if by_layer else own, group, index, held))
                held |= {t.name for unit in units for t in unit.layout.tensors}
                found |= {places.index(place): units for place in group}
        return tuple(found[at] for at in range(len(places)))

    def _units(self, name: str, places: Sequence[Place], part: int, held: set[str]) -> Iterator[UnitPlan]:
        """Yield the units of places of one part; dense parameters have one even if there are none."""
        layouts = self._layouts(places, part, held)
        frozen = any(layout.tensors for layout in layouts[2:])
        for kind, layout in zip(KINDS, layouts, strict=True):
            if layout.tensors or (kind == "dense" and not frozen):
                yield UnitPlan(f"{name}{SUFFIXES[kind]}", kind, part, layout, tuple(places))

    def _layouts(self, places: Sequence[Place], index: int, held: set[str]) -> tuple[UnitLayout, ...]:
        """Return the layouts of the places' parameters, without ``held`` ones: dense, experts', then frozen ones."""
        program, part = self.program, self.program.parts[index]
        tied_apart = len(program.end_ranks) > 1 and table_is_apart(program)
        dense, experts = (
            {t.name: t for place in places for t in self.tensors_of(place, experts=of) if t.name not in held}
            for of in (False, True)
        )
        shared = (TOKEN_TABLE,) if tied_apart and TOKEN_TABLE in dense else ()
        parts, expert_parts = int(part.shape.shard), int(part.shape.expert_shard)
        frozen = [[t for t in of.values() if not t.trained] for of in (dense, experts)]
        trains = [[t for t in of.values() if t.trained] for of in (dense, experts)]
        cut = any(frozen) and part.sharding == "zero3"
        if any(t.of_each_replica for t in trains[0]):
            dense_layout = unit_layout(trains[0], (), 1, OWN_MESH)
        else:
            dense_layout = self._owned(unit_layout(trains[0], shared, parts), places, part)
            dense_layout = replace(dense_layout, weights=part.shape.state_share)
        return (
            dense_layout,
            self._owned(unit_layout(trains[1], (), expert_parts, EXPERT_MESH), places, part),
            unit_layout(frozen[0], (), parts if cut else 1),
            unit_layout(frozen[1], (), expert_parts if cut else 1, EXPERT_MESH),
        )

    def _owned(self, layout: UnitLayout, places: Sequence[Place], part: Part) -> UnitLayout:
        """Return a layout with whole matrices in one part each, where the optimizer needs them so."""
        if not owned_whole(part.sharding):
            return layout
        stack = self.program.stack
        matrices = local_matrices(named_blocks(places, self.program), layout, stack)
        return with_owners(layout, matrices, part.shape, stack)

    def tensors_of(self, place: Place, *, experts: bool = False) -> list[Tensor]:
        """Return the parameters of a block, or of its experts, as this rank holds them.

        A tied head's table has the embedding's name.
        """
        index = self.program.parts.of_blocks[place.block]
        part = self.program.parts[index]
        here = {axis: self.place_in((axis,), index) for axis in ("tp", "ep", "etp")}
        here |= {"pp": self.pipeline_rank}
        replica, replicas = self.place_in(CHANGE_AXES, index), replicas_of(self.program)

        def local(p: Parameter, op: Operator) -> Tensor:
            name = TOKEN_TABLE if p.name == EMBEDDING_TABLE else f"{place.name}.{p.name}"
            tensor = local_tensor(name, p, op, part.shape, here, part.expert_order(place.layer))
            if p.of_each_replica and isinstance(op, LowRank):
                return part_of_stack(tensor, p, op, replica, replicas)
            return tensor

        return [
            local(p, op)
            for op in self.program.blocks[place.block].operators
            if (op.place == "expert") == experts
            for p in sorted(
                op.parameters, key=lambda p: -len(p.shape)
            )  # keeps an operator's matrices adjacent
        ]


def section_places(section: Stage, program: Program) -> tuple[Place, ...]:
    """Return the places of a section, in forward order."""
    layers, encoder = iter(section.layers), count()
    found = []
    for index in section.blocks:
        kind = program.blocks[index].kind
        number = next(layers) if kind == "layer" else None
        names = {"layer": f"layers.{number}", "encoder-end": ENCODER_END}
        name = f"encoder.{next(encoder)}" if kind == "encoder" else names.get(kind, kind)
        found.append(Place(index, name, number))
    return tuple(found)


def named_blocks(places: Sequence[Place], program: Program) -> NamedBlocks:
    """Return blocks by the names of their places."""
    return [(place.name, program.blocks[place.block]) for place in places]
