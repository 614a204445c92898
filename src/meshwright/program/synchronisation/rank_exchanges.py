"""List what a rank sends in an exchange of an entry of ``synchronise``: stretches of its units, collectives. Pure.

An exchange of a fragment has a message for each state, and each mesh of each part of the Program, that the rank has
tensors of: dense parameters, and experts. All members of a group hold equal stretches, since an axis between islands
shards no state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from meshwright.plans.synchronisation.fragments import fragment_of_layer
from meshwright.plans.synchronisation.synchronisation import Fragments, Synchronisation
from meshwright.program.pass_items import Collective
from meshwright.program.program import Program, Stage
from meshwright.program.rank_units.rank_units import RankUnits, UnitPlan
from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.program.synchronisation.exchange_legs import exchange_legs
from meshwright.program.synchronisation.islands import EXPERT_AXES
from meshwright.program.synchronisation.stretch import Stretch


@dataclass(frozen=True, slots=True)
class HeldStretch:
    """A stretch with its places: its unit and where it is in that unit's shard, its tensor and where it begins there.

    The stretch is named by both tensor and place, so that random choices for copies of it are the same.
    """

    unit: str
    tensor: str
    shard: slice
    start: int
    stretch: Stretch


@dataclass(frozen=True)
class ExchangeMessage:
    """The stretches that a rank sends of one state and one mesh; ``collectives`` carry them over ``axes`` of a part."""

    state: str
    part: int
    axes: tuple[str, ...]
    held: tuple[HeldStretch, ...]
    collectives: tuple[Collective, ...]

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The stretches, in order."""
        return tuple(one.stretch for one in self.held)

    @property
    def elements(self) -> int:
        """The elements of all stretches."""
        return sum(one.stretch.elements for one in self.held)


@dataclass(frozen=True)
class RankExchanges:
    """The exchanges of a rank: ``messages(entry, fragment)``."""

    program: Program
    rank: int

    @cached_property
    def units(self) -> RankUnits:
        """The units of the rank."""
        return RankUnits(self.program, self.rank)

    def messages(self, entry: int, fragment: int) -> tuple[ExchangeMessage, ...]:
        """Return the messages of one exchange; none where the rank has no such tensors."""
        found: dict[tuple[int, bool], list[HeldStretch]] = {}
        said = self.program.synchronise[entry]
        for unit in self.units.distinct():
            if unit.trained:
                key = unit.part, unit.kind == "experts"
                found.setdefault(key, []).extend(self._held(unit, said.fragment_rule, fragment))
        return tuple(
            self._message(said, state, fragment, part, experts, tuple(held))
            for state in said.states
            for (part, experts), held in found.items()
            if held
        )

    def _message(
        self,
        said: Synchronisation,
        state: str,
        fragment: int,
        part: int,
        experts: bool,
        held: tuple[HeldStretch, ...],
    ) -> ExchangeMessage:
        axes = (EXPERT_AXES[said.axis] if experts else said.axis,)
        what = f"{state} of fragment {fragment}"
        ranks = self.program.group_size(axes, part)
        legs = exchange_legs(said.compress, [one.stretch for one in held], ranks) if ranks > 1 else ()
        collectives = tuple(Collective(leg.kind, axes, leg.logical_bytes, what, part=part) for leg in legs)
        return ExchangeMessage(state, part, axes, held, collectives)

    def _held(self, unit: UnitPlan, rule: Fragments, fragment: int) -> Iterator[HeldStretch]:
        """Yield the stretches of a unit that belong to a fragment."""
        layout, layers = unit.layout, model_layers(self.program)
        own = self.units.place_in(layout.mesh.shard, unit.part) if layout.parts > 1 else 0
        for held in held_stretches(unit, own):
            if fragment_of_tensor(held.tensor, rule, layers) == fragment:
                yield held


def held_stretches(unit: UnitPlan, part: int) -> Iterator[HeldStretch]:
    """Yield the stretches of a unit in the shard of one of the ranks that share it."""
    tensors = {tensor.name: tensor for tensor in unit.layout.tensors}
    for name, of, here in unit.layout.spans(part):
        cut = ",".join(map(str, tensors[name].cuts))
        place = f"{name}/{cut}/{of.start}"
        stretch = Stretch(place, of.stop - of.start, _matrices(tensors[name], of), layer_of(name))
        yield HeldStretch(unit.name, name, here, of.start, stretch)


def unit_stretches(unit: UnitPlan, part: int) -> tuple[Stretch, ...]:
    """Return the stretches of a unit in the shard of one of the ranks that share it."""
    return tuple(held.stretch for held in held_stretches(unit, part))


def fragment_of_tensor(name: str, rule: Fragments, layers: int) -> int:
    """Return the fragment of a tensor by its full name (``layers.3.mlp.up``); a tied table is the embedding's."""
    layer = layer_of(name)
    if layer is not None:
        return fragment_of_layer(layer, rule, layers)
    return 0 if name.startswith(("embed.", "encoder.")) else int(rule.count) - 1


def layer_of(name: str) -> int | None:
    """Return the number of the layer that a tensor belongs to, from its name."""
    kind, _, rest = name.partition(".")
    return int(rest.partition(".")[0]) if kind == "layers" else None


def _matrices(tensor: Tensor, of: slice) -> tuple[int, int, int] | None:
    """Return count, rows and columns of a tensor that the rank has in one piece and that has matrices."""
    if len(tensor.shape) < 2 or (of.start, of.stop) != (0, tensor.elements):
        return None
    *leading, rows, columns = tensor.shape
    return prod(leading), rows, columns


def fragment_layers(program: Program, entry: int, fragment: int) -> frozenset[int]:
    """Return the layers of a fragment; −1 stands for all before them, their number for all behind."""
    rule, layers = program.synchronise[entry].fragment_rule, model_layers(program)
    found = {layer for layer in range(layers) if fragment_of_layer(layer, rule, layers) == fragment}
    found |= {-1} if fragment == 0 else set()
    return frozenset(found | ({layers} if fragment == int(rule.count) - 1 else set()))


def model_layers(program: Program) -> int:
    """Return the number of decoder layers, without multi-token prediction."""
    found = (
        number
        for stage in program.stages
        for number, block in zip(stage.layers, _layer_blocks(program, stage), strict=True)
        if not program.blocks[block].predicts_further
    )
    return 1 + max(found, default=-1)


def _layer_blocks(program: Program, stage: Stage) -> list[int]:
    return [block for block in stage.blocks if program.blocks[block].kind == "layer"]
