"""Mode, sharding, shapes and meshes of each layout in closed forms.

A group of plans with one layout for all layers has one part, with a row per plan. Plans with several layouts share
these: a group holds one such plan, perhaps under many constants, and its parts are those of its Program.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from meshwright.cost.memory.zero_unsharded_buffers import ZeroBufferRule
from meshwright.cost.operators.pass_prices import Mesh
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.lowering.pass_bodies import ExchangesOfParts, UnitExchanges
from meshwright.program.lowering.step_collectives import gathers_stages, reduces_stages
from meshwright.program.model_states.data_parallel_collectives import (
    add,
    stage_gathers,
    step_gathers,
    unit_exchanges,
    unit_reduction,
)
from meshwright.program.model_states.state_elements import Elements
from meshwright.program.pass_items import Collective, on_part
from meshwright.program.program_parts import ProgramParts
from meshwright.program.reshard import Reshard
from meshwright.stack.stack import Stack

Changes = Mapping[int, Reshard]
"""Changes of layout before blocks of a stage, by their places in it."""


@dataclass(frozen=True)
class GroupPart:
    """Choices, shapes and meshes of one layout's blocks; arrays have a row per plan.

    ``sharding`` is the ZeRO name of what the stack cuts, ``priced_shape`` has a row per distinct shape that is priced.
    """

    index: int
    mode: Mode
    sharding: str
    shape: LocalShape
    mesh: Mesh
    priced_shape: LocalShape

    @property
    def rule(self) -> ZeroBufferRule:
        """The times at which sharded states are held whole."""
        return ZeroBufferRule(self.sharding, self.mode.gather, self.mode.reduce)

    def gathers(self, blocks: Elements, stack: Stack) -> tuple[Collective, ...]:
        """Return the collectives of GATHER for blocks of this part in a stage."""
        found = step_gathers(blocks, self.sharding, stack, "stage") if gathers_stages(self) else ()
        return on_part(found, self.index)

    def reductions(self, blocks: Elements, stack: Stack) -> tuple[Collective, ...]:
        """Return the collectives of REDUCE for blocks of this part in a stage."""
        if not reduces_stages(self):
            return ()
        found = unit_reduction(blocks, self.sharding, self.mode, self.shape, stack, "stage")
        return on_part(found, self.index)


CollectivesOf = Callable[[GroupPart, Elements], tuple[Collective, ...]]
"""The collectives that the elements of a stage's blocks of a part call for."""


@dataclass(frozen=True)
class PlanLayouts:
    """The layouts of a plan that has several, as parts, and its changes of layout.

    ``reshards`` are by stage and place among its blocks; None: with the messages into the stage.
    """

    parts: ProgramParts
    reshards: Mapping[tuple[int, int | None], Reshard]
    table_shape: tuple[int, int]

    def changes(self, stage: int) -> dict[int, Reshard]:
        """Return the changes of layout inside a stage, by place."""
        return {
            place: found for (at, place), found in self.reshards.items() if at == stage and place is not None
        }


def pass_exchanges(
    parts: Sequence[GroupPart],
    of_blocks: Sequence[int],
    elements: Mapping[int, Elements],
    stack: Stack,
) -> ExchangesOfParts:
    """Return the state exchanges of passes by block, with shapes that are priced."""
    found: dict[int, UnitExchanges] = {}
    for part in parts:
        own = {block: each for block, each in elements.items() if of_blocks[block] == part.index}
        on_mesh = partial(on_part, part=part.index)
        exchanges = unit_exchanges(own, part.sharding, part.mode, part.priced_shape, stack, on_mesh)
        found |= dict.fromkeys(own, exchanges)
    return ExchangesOfParts(found)


def stage_gathers_at_once(
    parts: Sequence[GroupPart], of_parts: Mapping[int, Elements], stack: Stack
) -> tuple[Collective, ...]:
    """Return the gathers before a forward pass over a whole stage, whose elements are given by part."""
    return tuple(
        collective
        for index, elements in of_parts.items()
        for collective in on_part(stage_gathers(elements, parts[index].mode, stack, "stage"), index)
    )


def elements_by_part(
    blocks: Iterable[int], of_blocks: Sequence[int], elements: Mapping[int, Elements]
) -> dict[int, Elements]:
    """Return the elements of blocks added up by part, in the order of each part's first block."""
    found: dict[int, list[Elements]] = {}
    for block in blocks:
        found.setdefault(of_blocks[block], []).append(elements[block])
    return {part: add(*each) for part, each in found.items()}
