"""Stages, layouts, and elements of model states of one group of plans, as arrays.

``stage_kinds`` are the distinct contents of stages (first, middle, last, …) and ``kind_of`` says which one each
stage has, so that everything is computed once per kind and then spread over the K stages.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.group_parts import (
    Changes,
    GroupPart,
    PlanLayouts,
    elements_by_part,
)
from meshwright.cost.constants_by_row import ConstantCases
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.operators.pass_prices import (
    Mesh,
    Prices,
)
from meshwright.cost.operators.price_plans import (
    array_mesh,
    array_shape,
    pass_kinds,
    setting_hardware_times,
)
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.cost.pipeline_time.time_action_lists import stages_of_ranks
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.shared_pipeline import SharedPipeline
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.forms.long import Pipeline
from meshwright.plans.forms.short import Schedule
from meshwright.plans.layers.layer_assignment import stage_layers
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.lowering.pass_bodies import Shared
from meshwright.program.lowering.stage_blocks import stage_blocks
from meshwright.program.model_states.hidden_matrices import (
    Matrices,
    elements_by_optimizer,
    held_matrices,
    stage_matrices,
)
from meshwright.program.model_states.stack_zero_semantics import effective_sharding
from meshwright.program.model_states.state_elements import Elements, StateKind, block_elements
from meshwright.program.model_states.zero_sharding import SHARDED, held_elements
from meshwright.program.pass_items import PassKind
from meshwright.schedules.choice import validates_afterwards
from meshwright.schedules.pipeline import looped_placement
from meshwright.schedules.schedule_kind import ScheduleKind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
T = TypeVar("T")
Content = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]
"""The blocks of a stage, and the changes of layout inside it: their places and identities."""


@dataclass(frozen=True)
class GroupStages(SharedPipeline):
    """``inverse[i]`` is the row of ``prices`` that plan i has; all other arrays have one row per plan.

    ``cases``: the constants that each plan is priced with, where they are not those of the setting. ``layouts``: those
    of a plan that has several; ``plans`` then has its first one's row, once for each case.
    """

    plans: PlanArrays
    inverse: Ints
    prices: Prices
    mode: Mode
    setting: Setting
    cases: ConstantCases | None = None
    layouts: PlanLayouts | None = None

    def take(self, rows: Ints) -> Self:
        """Return the plans at ``rows``, with the same prices."""
        cases = self.cases and self.cases.take(rows)
        return replace(self, plans=self.plans.take(rows), inverse=self.inverse[rows], cases=cases)

    @property
    def kind(self) -> ScheduleKind:
        """Facts about the schedule."""
        return self.schedule.kind

    @property
    def formed(self) -> bool:
        """Return true if a closed form holds for the passes, offload copies aside."""
        return bool(have_forms(self.plans)[0])

    @property
    def split(self) -> bool:
        """Backward passes are I and W."""
        return self.kind.split

    @property
    def forward_only(self) -> bool:
        """There are no backward passes."""
        return self.setting.stack.optimizer.forward_only

    @property
    def pass_kinds(self) -> tuple[PassKind, ...]:
        """The passes of a micro-batch over a stage."""
        return pass_kinds(self.schedule, self.setting.stack)

    @property
    def steps_overlap(self) -> bool:
        """As ``Program.steps_overlap``."""
        usually = self.setting.stack.validates_step_afterwards
        return validates_afterwards(self.schedule, usually, self.ranks)

    @cached_property
    def placement(self) -> tuple[int, ...]:
        """The pipeline rank of every stage."""
        return self.kind.placement(self.ranks, self.chunks)

    @cached_property
    def stages_at(self) -> Ints:
        """The stages of every rank by their places in a chain: (V, P)."""
        return stages_of_ranks(self.schedule, self.ranks, self.chunks)

    @cached_property
    def crosses(self) -> Floats:
        """1 for each stage whose successor is on another rank, 0 for the others."""
        ranks = np.array(self.placement).reshape(self.kind.chains, -1)
        crosses = np.pad(ranks[:, 1:] != ranks[:, :-1], ((0, 0), (0, 1)))
        return crosses.reshape(-1).astype(np.float64)

    @property
    def ends_together(self) -> bool:
        """Whoever holds the embedding, or a share of it, holds that of the head too."""
        alike = self.part_of(self.stages[0][0]) is self.part_of(self.stages[-1][-1])
        return (self.placement[0] == self.placement[-1] and alike) or self.schedule.form is not None

    @property
    def tied_apart(self) -> bool:
        """Two ranks hold a copy of the embedding table each."""
        return self.setting.model.tied_gradients and not self.ends_together and not self.forward_only

    @property
    def shared(self) -> Shared | None:
        """The blocks of embedding and head, where they share a table on one rank."""
        chain = self.setting.model.chain
        together = self.setting.model.tied_head and self.ends_together
        return (chain[0][0], chain[-1][0]) if together else None

    @cached_property
    def parts(self) -> tuple[GroupPart, ...]:
        """The layouts of blocks; one where all layers have the same."""
        if self.layouts is None:
            priced = self.prices.local.shape
            return (GroupPart(0, self.mode, self.sharding, self.shape, self.mesh, priced),)
        return tuple(
            GroupPart(index, part.mode, part.sharding, part.shape, self.prices.of_part(index)[1], part.shape)
            for index, part in enumerate(self.layouts.parts)
        )

    @cached_property
    def of_blocks(self) -> tuple[int, ...]:
        """The index of every block's part."""
        several = self.layouts and self.layouts.parts.of_blocks
        return several or (0,) * len(self.setting.model.blocks)

    def part_of(self, block: int) -> GroupPart:
        """Return the part of a block."""
        return self.parts[self.of_blocks[block]]

    @property
    def sharding(self) -> str:
        """ZeRO name of what the stack cuts."""
        return effective_sharding(SHARDINGS[int(self.plans.sharding[0])], self.setting.stack)

    @cached_property
    def forms(self) -> HardwareTimes:
        """HardwareTimes of the pool; constants that differ between plans have one row per plan."""
        return self._forms(1)

    @cached_property
    def stage_forms(self) -> HardwareTimes:
        """As ``forms``, for arrays of plans and stages or ranks: (n, 1)."""
        return self._forms(2)

    def _forms(self, axes: int) -> HardwareTimes:
        found, rows = self.prices.local.forms, (-1,) + (1,) * (axes - 1)
        if self.cases is not None:
            devices = self.plans.devices.reshape(rows) if self.plans.several_sizes else None
            return setting_hardware_times(self.cases.setting(self.setting, axes), devices)
        return found.spread(self.inverse, rows) if self.plans.several_sizes else found

    @cached_property
    def micro_batches(self) -> Ints:
        """M of every plan."""
        return self.plans.micro_batches(self.setting.workload.computed_sequences)

    @property
    def visits(self) -> Ints:
        """Micro-batches that go through a stage, of every plan: M by the number of chains."""
        return self.micro_batches // self.kind.chains

    @cached_property
    def shape(self) -> LocalShape:
        """Local shapes, one row per plan."""
        return array_shape(self.plans, self.setting)

    @cached_property
    def mesh(self) -> Mesh:
        """Axes, one row per plan."""
        return array_mesh(self.plans, self.forms)

    @cached_property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the blocks of every stage."""
        schedule = Schedule.of(self.schedule)
        pipeline = Pipeline(stages=self.plans.stages, placement=self.placement, schedule=schedule)
        model = self.setting.model
        contents = stage_layers(pipeline, len(model.layer_blocks))
        return tuple(stage_blocks(content, model) for content in contents)

    @cached_property
    def stage_kinds(self) -> tuple[tuple[int, ...], ...]:
        """Distinct contents of stages."""
        return tuple(blocks for blocks, _ in self._contents)

    @property
    def contents(self) -> list[Content]:
        """Distinct contents of stages, with the changes of layout inside them."""
        return list(self._contents)

    @cached_property
    def _contents(self) -> dict[Content, Changes]:
        """Changes of layout inside each kind of stage, by its blocks and the changes' identity."""
        return {self._content(stage): self._changes(stage) for stage in range(len(self.stages))}

    def _changes(self, stage: int) -> Changes:
        return {} if self.layouts is None else self.layouts.changes(stage)

    def _content(self, stage: int) -> Content:
        return self.stages[stage], tuple((place, id(one)) for place, one in self._changes(stage).items())

    @cached_property
    def kind_of(self) -> Ints:
        """Index into ``stage_kinds`` of every stage."""
        kinds = {content: kind for kind, content in enumerate(self._contents)}
        return np.array([kinds[self._content(stage)] for stage in range(len(self.stages))])

    def made_once(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """Return what all groups with these prices have in common that cut and share the same states."""
        return self.prices.shared.once((self.sharding, self.ends_together, *key), make)

    @cached_property
    def block_elements(self) -> dict[int, Elements]:
        """Elements of each block, one row per distinct shape."""
        return self.made_once(("elements",), self._block_elements)

    def _block_elements(self) -> dict[int, Elements]:
        blocks = self.setting.model.blocks
        found = [block_elements(blocks, p.priced_shape, ends_together=self.ends_together) for p in self.parts]
        return {block: found[part][block] for block, part in enumerate(self.of_blocks)}

    def elements_of(self, blocks: tuple[int, ...]) -> dict[int, Elements]:
        """Elements of a stage by part, one row per distinct shape."""
        return self.made_once(
            ("elements", blocks), lambda: elements_by_part(blocks, self.of_blocks, self.block_elements)
        )

    @cached_property
    def plan_elements(self) -> Mapping[int, Elements]:
        """As ``block_elements``, one row per plan."""
        return {index: self.per_plan_elements(each) for index, each in self.block_elements.items()}

    @cached_property
    def optimizer_elements(self) -> Mapping[int, Elements]:
        """As ``block_elements``, without the matrices that Muon takes."""
        blocks, shape, stack = self.setting.model.blocks, self.prices.local.shape, self.setting.stack
        return elements_by_optimizer(blocks, self.block_elements, shape, stack, self.ends_together)

    @cached_property
    def kind_matrices(self) -> tuple[Matrices, ...]:
        """Return the matrices that Muon takes of each kind of stage."""
        blocks, stack = self.setting.model.blocks, self.setting.stack
        return tuple(stage_matrices((blocks[b] for b in kind), stack) for kind in self.stage_kinds)

    @cached_property
    def held_matrices(self) -> Floats:
        """Elements of matrices whose optimizer states each pipeline rank holds: (n, P)."""
        stack, nothing = self.setting.stack, np.zeros(len(self.plans))
        if not stack.optimizer.kind.of_matrices:
            return np.zeros((len(self.plans), self.ranks))
        held = (held_matrices(matrices, self.sharding, self.shape, stack) for matrices in self.kind_matrices)
        return self.per_rank(self.spread([nothing + dense + expert for dense, expert in held]))

    @cached_property
    def kind_elements(self) -> tuple[dict[int, Elements], ...]:
        """Elements of each kind of stage by part, one row per plan."""
        return tuple(
            {part: self.per_plan_elements(each) for part, each in of_kind.items()}
            for of_kind in map(self.elements_of, self.stage_kinds)
        )

    def held(self, kind: StateKind) -> Floats:
        """Elements of a kind of state on every pipeline rank: (n, P); each block's shard is rounded up by itself."""
        sharded = tuple(kind in SHARDED[part.sharding] for part in self.parts)
        apart = kind == "optimizer" and self.setting.stack.optimizer.kind.of_matrices
        apart = apart or any(elements.trained is not None for elements in self.block_elements.values())
        key = sharded, kind if apart else "parameter"
        if key not in self._held:
            self._held[key] = self.on_ranks(self.held_of_blocks(kind))
        return self._held[key]

    @cached_property
    def _held(self) -> dict[tuple[tuple[bool, ...], str], Floats]:
        return {}

    def held_of_blocks(self, kind: StateKind) -> dict[int, Floats]:
        """Elements of a kind of state that a rank holds of each block: (n,) each."""
        of_kind = self.optimizer_elements if kind == "optimizer" else self.block_elements
        found = {}
        for index, each in of_kind.items():
            part = self.part_of(index)
            count, cut = self.per_plan_elements(each.of(kind)), kind in SHARDED[part.sharding]
            found[index] = np.asarray(held_elements(count, kind, cut, part.shape).total)
        return found

    def on_ranks(self, blocks: Mapping[int, Floats]) -> Floats:
        """Sum up what each rank has of every block, one row per plan: (n, P)."""
        held = self.per_rank(self.spread([np.sum([blocks[b] for b in k], axis=0) for k in self.stage_kinds]))
        return held + np.sum([blocks[b] for b in self.setting.model.vocabulary], axis=0).reshape(-1, 1)

    def per_plan_elements(self, elements: Elements) -> Elements:
        """Spread rows of distinct shapes over plans."""
        return elements.mapped(self.per_plan)

    def per_plan(self, value: object) -> Floats:
        """Spread a value per distinct shape (or a scalar) over plans."""
        array = np.asarray(value, dtype=np.float64)
        return array[self.inverse] if array.ndim else np.full(len(self.plans), float(array))

    def spread(self, per_kind: list[Floats]) -> Floats:
        """(n,) per kind of stage → (n, K)."""
        return np.stack(per_kind, 1)[:, self.kind_of]

    def per_rank(self, stages: Floats) -> Floats:
        """Sum over the chunks of a rank: (n, K) → (n, P)."""
        if self.kind.placement is looped_placement:
            return np.asarray(stages.reshape(len(stages), self.chunks, self.ranks).sum(1))
        return np.asarray(stages[:, self.stages_at].sum(1))
