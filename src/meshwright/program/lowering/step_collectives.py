"""The actions around the schedule in a step: gathers before, reductions after, gradient norm, optimizer.

A rank's list becomes: GATHER of each stage (when sharded parameters are made whole once a step), the schedule
with REDUCE right after a stage's last backward action where the stack overlaps it with compute (after the whole
schedule where not: it must not hold up a message), REDUCE_MIRRORED of each stage where other ranks have its layers too
(``program/model_states/bidirectional_gradient_reduction.py``), REDUCE_TIED where two ranks share the embedding
table, NORM (with more around it where steps are validated after they are taken: ``optimizer_post_validation.py``),
STEP (with the exchange of adapters that change the base: ``program/model_states/base_changes.py``), and GATHER again at
the end where the stack does not overlap it with the next forward pass. With ``gather: per-unit`` GATHER, FREE and
REDUCE are inside the schedule (``program/model_states/per_unit_gather_and_reduce.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Protocol

import numpy as np

from meshwright.plans.synchronisation.combination import OF_WHOLE_GRADIENTS
from meshwright.plans.synchronisation.synchronisation import (
    Synchronisation,
    combined_entry,
    exchanged_between_steps,
)
from meshwright.program.layouts.table_transfers import TableEnds, busiest_elements, table_transfers
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.lowering.optimizer_post_validation import norm_axes, sums_on, with_validation
from meshwright.program.lowering.pass_bodies import Shared
from meshwright.program.model_states.base_changes import CHANGE_AXES, change_gather
from meshwright.program.model_states.bidirectional_gradient_reduction import (
    MIRRORED,
    mirrored_reduction,
    reduced_units,
)
from meshwright.program.model_states.data_parallel_collectives import (
    EncodedAxes,
    add,
    step_gathers,
    unit_reduction,
)
from meshwright.program.model_states.per_unit_gather_and_reduce import UnitRule, exchange_units
from meshwright.program.model_states.state_elements import Elements
from meshwright.program.pass_items import Collective, on_part
from meshwright.program.program import TABLE_PIECES, Stage
from meshwright.program.program_parts import ProgramParts
from meshwright.program.synchronisation.exact_entries import entries_by_axis, with_entries
from meshwright.program.synchronisation.islands import ISLAND, island_size, on_both_meshes
from meshwright.schedules.action import MAKE_GRADIENTS, SYNCHRONISATIONS, Action, ActionLists, Kind
from meshwright.schedules.dependencies import StageChains
from meshwright.stack.stack import Stack

LISTED = ("per-step", "per-unit")
"""When states are exchanged by actions of the lists."""
NORM_BYTES = 8
"""The sum of squares of all gradients and the sum of the losses, in fp32."""
PRODUCT_BYTES = 4
"""A product of two replicas' gradients, in fp32."""
PRODUCTS = "products of gradients"
LOSS_BYTES = 16
"""The sums of the two losses of a step without backward passes, in fp64."""


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The inputs of the actions around the schedule. ``elements`` is per block, ``ways`` of the stages.

    ``tied``: the last stage has a copy of the embedding's table, ``tied_head``: its head reads it.
    ``unit`` is how many micro-batches go through the schedule
    together; None where it has no units. ``shares`` are those of a vocabulary that is spread over the ranks.
    ``validated_afterwards``: ranks do not wait for all before they step. ``optimizer_elements`` are those of each block
    whose optimizer states count by element: all but the matrices that Muon takes. ``table_shape``: rows and width of
    the token table. ``loose`` are the axes between islands, of which ``synchronise`` has entries.
    """

    parts: ProgramParts
    stack: Stack
    stages: tuple[Stage, ...]
    ways: StageChains
    elements: Mapping[int, Elements]
    tied: bool
    tied_head: bool
    unit: int | None = None
    shares: tuple[Stage, ...] = ()
    validated_afterwards: bool = False
    optimizer_elements: Mapping[int, Elements] = field(default_factory=dict)
    table_shape: tuple[int, int] = (0, 0)
    synchronise: tuple[Synchronisation, ...] = ()
    loose: tuple[str, ...] = ()

    @property
    def sections(self) -> tuple[Stage, ...]:
        """Shares and stages, in the order in which a step needs them."""
        return self.shares + self.stages

    @cached_property
    def encoded(self) -> EncodedAxes:
        """The entries of ``synchronise`` for exchanges inside a step."""
        states = ("parameter", "gradient")
        return EncodedAxes(*(entries_by_axis(self.synchronise, self.loose, state) for state in states))

    @property
    def overlapped(self) -> frozenset[Kind]:
        """Return the kinds of actions that overlap compute.

        Gradients that late replicas do not count for are reduced behind all passes, when it is known who is late.
        """
        kinds, entry = overlapped_kinds(self.stack), combined_entry(self.synchronise)
        waits = entry is not None and self.synchronise[entry].lacks_late_replicas
        return kinds - {"REDUCE"} if waits else kinds

    @property
    def tied_ranks(self) -> tuple[int, ...]:
        """The pipeline ranks that share the embedding table; empty when one rank holds both ends."""
        ends = (self.stages[0].rank, self.stages[-1].rank)
        return ends if self.tied and ends[0] != ends[1] else ()

    @property
    def shared(self) -> Shared | None:
        """The blocks of embedding and head, where they share a table on one rank."""
        ends = self.stages[0], self.stages[-1]
        return (
            (ends[0].blocks[0], ends[1].blocks[-1])
            if self.tied_head and ends[0].rank == ends[1].rank
            else None
        )

    def gathers_early(self, section: int | None) -> bool:
        """Return true if a section's parameters are gathered at the beginning of a step, not at its end."""
        return "GATHER" in self.overlapped or self.frees_stage(section)

    def frees_stage(self, section: int | None) -> bool:
        """Return true if some of a section's parameters are whole only during a step."""
        (found,) = (one for one in self.sections if one.index == section)
        return any(self.parts.of(block).mode.gather == "per-step" for block in found.blocks)

    def elements_of(self, blocks: Sequence[int]) -> Elements:
        """Elements of blocks on one rank, all together."""
        return add(*(self.elements[block] for block in blocks))

    def live(self, collectives: Sequence[Collective]) -> tuple[Collective, ...]:
        """Return collectives inside an island, without those whose group has one member."""
        tight = (_without_axes(c, on_both_meshes(self.loose)) for c in collectives)
        return tuple(c for c in tight if self.group_size(c.axes, c.part) > 1)

    def group_size(self, axes: tuple[str, ...], part: int = 0) -> int:
        """Members of a group over ``axes`` of a part; "world" is every rank."""
        if axes == ("world",):
            return self.parts.ranks
        if axes == ISLAND:
            return island_size(self.parts[0].grid, self.loose)
        if axes == MIRRORED:
            return self.ways.chains
        if axes == TABLE_PIECES:
            return 2
        return self.parts[part].mesh_with(axes).size(axes)


class ExchangedStates(Protocol):
    """The sharding and the mode of a layout, which say when its states are exchanged."""

    @property
    def sharding(self) -> str:
        """ZeRO name of what is cut."""

    @property
    def mode(self) -> Mode:
        """The timing of state exchanges."""


def gathers_stages(part: ExchangedStates) -> bool:
    """Return true if an action of the list makes sharded parameters of a stage whole, not its passes."""
    return part.sharding in ("zero1", "zero2") or part.mode.gather in LISTED


def reduces_stages(part: ExchangedStates) -> bool:
    """Return true if an action of the list exchanges the gradients of a stage, not every micro-batch."""
    return part.mode.reduce in LISTED


def overlapped_kinds(stack: Stack) -> frozenset[Kind]:
    """Return the kinds of actions that overlap compute in a stack."""
    kinds: set[Kind] = set()
    if stack.overlap_parameter_gather:
        kinds.add("GATHER")
    if stack.overlap_gradient_reduction:
        kinds.add("REDUCE")
    return frozenset(kinds)


def step_collectives(step: StepPlan) -> dict[tuple[int | None, Kind], tuple[Collective, ...]]:
    """Return the collectives of the actions around the schedule; entries without members are left out."""
    result: dict[tuple[int | None, Kind], tuple[Collective, ...]] = {}
    for stage in step.sections:
        for index, blocks in step.parts.blocks_by_part(stage.blocks).items():
            for kind, collectives in _section_collectives(step, stage, index, blocks).items():
                live = step.live(on_part(collectives, index))
                result[stage.index, kind] = (*result.get((stage.index, kind), ()), *live)
    if step.tied_ranks:
        result[None, "REDUCE_TIED"] = (_table_exchange(step),)
    axes = norm_axes(step.validated_afterwards) if not step.loose else ISLAND
    sums = (*row_products(step, axes), step_sums(step.stack, axes))
    result[None, "NORM"] = step.live(sums)
    return {key: collectives for key, collectives in result.items() if collectives}


def _section_collectives(
    step: StepPlan, section: Stage, index: int, blocks: Sequence[int]
) -> dict[Kind, tuple[Collective, ...]]:
    """Return the collectives of the blocks of a stage or share that belong to one part."""
    part, elements, what = step.parts[index], step.elements_of(blocks), f"stage {section.index}"
    found: dict[Kind, tuple[Collective, ...]] = {}
    if gathers_stages(part):
        gathers = step_gathers(elements, part.sharding, step.stack, what)
        found["GATHER"] = with_entries(gathers, step.encoded.gathers)
    if reduces_stages(part):
        reduction = unit_reduction(elements, part.sharding, part.mode, part.shape, step.stack, what)
        found["REDUCE"] = with_entries(reduction, step.encoded.reductions)
    found["STEP"] = change_gather(elements, step.group_size(CHANGE_AXES, index), what)
    units = reduced_units([step.elements[block] for block in blocks], part.mode.gather)
    found["REDUCE_MIRRORED"] = mirrored_reduction(units, part.shape, step.stack, what)
    return found


def step_sums(stack: Stack, axes: tuple[str, ...]) -> Collective:
    """All-reduce of the numbers that a step needs of all ranks."""
    if stack.optimizer.forward_only:
        return Collective("all-reduce", axes, LOSS_BYTES, "two losses")
    return Collective("all-reduce", axes, NORM_BYTES, "gradient norm")


def row_products(step: StepPlan, axes: tuple[str, ...]) -> tuple[Collective, ...]:
    """All-reduce of the products of the replicas' gradients, which some rules combine them by."""
    entry = combined_entry(step.synchronise)
    if entry is None or step.synchronise[entry].combination not in OF_WHOLE_GRADIENTS:
        return ()
    replicas = step.group_size((step.synchronise[entry].axis,))
    return (Collective("all-reduce", axes, PRODUCT_BYTES * replicas**2, PRODUCTS),)


def _table_exchange(step: StepPlan) -> Collective:
    """Return the exchange of a tied table's gradient; in two layouts, of the bytes of the busiest rank."""
    first, last, of = step.stages[0], step.stages[-1], step.parts.of_blocks
    ends = (of[first.blocks[0]], first.rank), (of[last.blocks[-1]], last.rank)
    part = step.parts[ends[0][0]]
    if ends[0][0] == ends[1][0]:
        return tied_reduction(step.elements[first.blocks[0]], part.sharding, part.shape, step.stack)
    return table_exchange(step.parts, ends, step.table_shape, step.stack)


def table_exchange(
    parts: ProgramParts, ends: TableEnds, table_shape: tuple[int, int], stack: Stack
) -> Collective:
    """Return the exchange of a tied table's gradient between two layouts, of the busiest rank's bytes."""
    elements = busiest_elements(table_transfers(parts, ends, *table_shape))
    size = stack.gradient_communication_bytes * elements
    return Collective("reduce", TABLE_PIECES, size, "embedding table")


def tied_reduction(embedding: Elements, sharding: str, shape: LocalShape, stack: Stack) -> Collective:
    """All-reduce of the shared table's gradient between the first and the last pipeline rank.

    Of the embedding block only the table is cut over tp; learned positions and a norm are whole, and not shared.
    """
    table = embedding.dense - embedding.whole
    if stack.ties_shards and sharding != "none":
        table = np.ceil(table / shape.shard)
    return Collective("all-reduce", ("tied",), stack.gradient_communication_bytes * table, "embedding table")


def wrap_lists(
    lists: ActionLists,
    step: StepPlan,
    collectives: Mapping[tuple[int | None, Kind], tuple[Collective, ...]],
) -> tuple[tuple[Action, ...], ...]:
    """Put the step's own actions around each rank's schedule."""
    wrapped = tuple(_wrap(rank, actions, step, collectives) for rank, actions in enumerate(lists))
    return with_validation(wrapped, step.ways) if step.validated_afterwards else wrapped


def _wrap(
    rank: int,
    actions: Sequence[Action],
    step: StepPlan,
    collectives: Mapping[tuple[int | None, Kind], tuple[Collective, ...]],
) -> tuple[Action, ...]:
    mine = sorted((stage.index for stage in step.stages if stage.rank == rank), key=step.ways.position)
    if step.parts.by_unit:
        return (*_unit_by_unit(mine, actions, step, collectives), *_end(rank, mine, step, collectives))
    mine = [share.index for share in step.shares if share.rank == rank] + mine
    gather = [Action("GATHER", stage) for stage in mine if (stage, "GATHER") in collectives]
    early = [action for action in gather if step.gathers_early(action.stage)]
    after = {stage: _after_last(stage, step, collectives) for stage in mine}
    wrapped = around_passes(actions, early, after, overlapped="REDUCE" in step.overlapped)
    wrapped += _end(rank, mine, step, collectives)
    return (*wrapped, *(action for action in gather if action not in early))


def around_passes(
    actions: Sequence[Action],
    early: Sequence[Action],
    after: Mapping[int, Sequence[Action]],
    *,
    overlapped: bool,
) -> list[Action]:
    """Return a rank's list with gathers before it, and reductions ``after`` the last pass that makes gradients.

    Reductions that overlap compute stand right behind that pass of their stage, others behind the whole list.
    """
    wrapped, last = list(early), _last_backward(actions)
    for position, action in enumerate(actions):
        wrapped.append(action)
        if overlapped and position in last:
            wrapped += after[last[position]]
    return wrapped if overlapped else [*wrapped, *chain.from_iterable(after.values())]


def _unit_by_unit(
    stages: Sequence[int],
    actions: Sequence[Action],
    step: StepPlan,
    collectives: Mapping[tuple[int | None, Kind], tuple[Collective, ...]],
) -> list[Action]:
    assert step.unit is not None, "the schedule has no units"
    gathered, reduced = (
        [stage for stage in stages if (stage, kind) in collectives] for kind in ("GATHER", "REDUCE")
    )
    return exchange_units(
        actions, UnitRule(size=step.unit, gathered=gathered, reduced=reduced, overlapped=step.overlapped)
    )


def _end(
    rank: int,
    stages: Sequence[int],
    step: StepPlan,
    collectives: Mapping[tuple[int | None, Kind], tuple[Collective, ...]],
) -> list[Action]:
    """Return a rank's actions after its gradient reductions: mirrored and tied weights, norm, optimizer step."""
    mirrored = [Action("REDUCE_MIRRORED", s) for s in stages if (s, "REDUCE_MIRRORED") in collectives]
    tied = [Action("REDUCE_TIED")] if rank in step.tied_ranks else []
    norm = [Action("NORM")] if (None, "NORM") in collectives else []
    if step.validated_afterwards:
        norm = sums_on(rank, step.parts[0].grid.sizes["pp"])
    entries = exchanged_between_steps(step.synchronise, step.loose)
    exchanges = (Action(kind, entry) for entry in entries for kind in SYNCHRONISATIONS)
    return [*mirrored, *tied, *norm, Action("STEP"), *exchanges]


def _without_axes(item: Collective, axes: frozenset[str]) -> Collective:
    """Return a collective over the other axes."""
    kept = tuple(axis for axis in item.axes if axis not in axes)
    return item if kept == item.axes else replace(item, axes=kept)


def late_gathers(actions: Sequence[Action]) -> list[Action]:
    """GATHER actions at the end of a list, which serve the next step: before the first one they are due too."""
    return [action for action in actions[actions.index(Action("STEP")) :] if action.kind == "GATHER"]


def _last_backward(actions: Sequence[Action]) -> dict[int, int]:
    """Position of the last pass of each stage that makes gradients of its weights → the stage."""
    found: dict[int, int] = {}
    for position, action in enumerate(actions):
        if action.kind in MAKE_GRADIENTS and action.stage is not None:
            found[action.stage] = position
    return {position: stage for stage, position in found.items()}


def _after_last(
    stage: int,
    step: StepPlan,
    collectives: Mapping[tuple[int | None, Kind], tuple[Collective, ...]],
) -> list[Action]:
    after = [Action("REDUCE", stage)] if (stage, "REDUCE") in collectives else []
    return after + ([Action("FREE", stage)] if step.frees_stage(stage) else [])
