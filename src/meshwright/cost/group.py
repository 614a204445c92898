"""One group of plans with equal mode, pipeline shape, schedule and sharding: their stages as arrays.

``stage_kinds`` are the distinct contents of stages (first, middle, last, …) and ``kind_of`` says which one each
stage has, so that everything is priced once per kind and then spread over the K stages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.forms import Forms
from meshwright.cost.prices import Mesh, Parts, Prices
from meshwright.cost.pricing import array_mesh, array_shape
from meshwright.plan.arrays import SHARDINGS, PlanArrays
from meshwright.plan.layers import stage_layers
from meshwright.plan.long import Pipeline, Schedule
from meshwright.plan.setting import Setting
from meshwright.program.items import Body, Collective, PassKind
from meshwright.program.passes import pass_body
from meshwright.program.shape import LocalShape, Mode, Number
from meshwright.program.stages import stage_blocks
from meshwright.program.states import Elements, StateKind, block_elements
from meshwright.program.synchronise import add, gathers, reductions
from meshwright.program.table import SHARDED
from meshwright.schedule.generators import looped_placement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """``inverse[i]`` is the row of ``prices`` that plan i has; all other arrays have one row per plan."""

    plans: PlanArrays
    inverse: Ints
    prices: Prices
    mode: Mode
    setting: Setting

    def take(self, rows: Ints) -> "Group":
        """The plans at ``rows``, with the same prices."""
        return Group(self.plans.take(rows), self.inverse[rows], self.prices, self.mode, self.setting)

    @property
    def ranks(self) -> int:
        """Pipeline ranks P."""
        return int(self.plans.pp[0])

    @property
    def chunks(self) -> int:
        """Stages per rank V."""
        return int(self.plans.virtual_stages[0])

    @property
    def schedule(self) -> str:
        """Name of the schedule."""
        return self.plans.schedules[int(self.plans.schedule[0])]

    @property
    def sharding(self) -> str:
        """ZeRO name."""
        return SHARDINGS[int(self.plans.sharding[0])]

    @property
    def forms(self) -> Forms:
        """Forms of the pool."""
        return self.prices.local.forms

    @cached_property
    def micro_batches(self) -> Ints:
        """M of every plan."""
        return self.plans.micro_batches(self.setting.workload.global_batch)

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
        """Block indices of every stage."""
        placement = looped_placement(self.ranks, self.chunks)
        pipeline = Pipeline(placement=placement, schedule=Schedule(name=self.schedule))
        model = self.setting.model
        return tuple(stage_blocks(c, model) for c in stage_layers(pipeline, len(model.layer_blocks)))

    @cached_property
    def stage_kinds(self) -> tuple[tuple[int, ...], ...]:
        """Distinct contents of stages."""
        return tuple(dict.fromkeys(self.stages))

    @cached_property
    def kind_of(self) -> Ints:
        """Index into ``stage_kinds`` of every stage."""
        return np.array([self.stage_kinds.index(stage) for stage in self.stages])

    @cached_property
    def block_elements(self) -> dict[int, Elements]:
        """Elements of each block, one row per distinct shape."""
        blocks = self.setting.model.blocks
        return block_elements(blocks, self.prices.local.shape, ends_together=self.ranks == 1)

    @cached_property
    def kind_elements(self) -> tuple[Elements, ...]:
        """Elements of each kind of stage, one row per plan."""
        return tuple(
            self.per_plan_elements(add(*(self.block_elements[b] for b in k))) for k in self.stage_kinds
        )

    def held(self, kind: StateKind) -> Floats:
        """Elements of a kind of state on every pipeline rank: (n, P); each block's shard is rounded up by itself."""
        return self._sharded_elements if kind in SHARDED[self.sharding] else self._whole_elements

    @cached_property
    def _whole_elements(self) -> Floats:
        return self._rank_elements(1, 1)

    @cached_property
    def _sharded_elements(self) -> Floats:
        return self._rank_elements(self.shape.shard, self.shape.expert_shard)

    def _rank_elements(self, shard: Number, expert_shard: Number) -> Floats:
        blocks = {
            index: np.ceil(self.per_plan(e.dense) / shard) + np.ceil(self.per_plan(e.expert) / expert_shard)
            for index, e in self.block_elements.items()
        }
        return self.per_rank(self.spread([np.sum([blocks[b] for b in k], axis=0) for k in self.stage_kinds]))

    def per_plan_elements(self, elements: Elements) -> Elements:
        """Spread rows of distinct shapes over plans."""
        return Elements(*(self.per_plan(e) for e in (elements.dense, elements.expert, elements.whole)))

    def per_plan(self, value: object) -> Floats:
        """Spread a value per distinct shape (or a scalar) over plans."""
        array = np.asarray(value, dtype=np.float64)
        return array[self.inverse] if array.ndim else np.full(len(self.plans), float(array))

    def bodies(self, kind: PassKind) -> tuple[Body, ...]:
        """The body of a pass for each kind of stage."""
        shape, stack = self.prices.local.shape, self.setting.stack
        units = self.block_elements.items()
        ahead = {i: gathers(e, f"block {i}") for i, e in units}
        behind = {i: reductions(e, self.sharding, shape, stack, f"block {i}") for i, e in units}
        return tuple(pass_body(blocks, kind, self.mode.gather, ahead, behind) for blocks in self.stage_kinds)

    @cached_property
    def forward(self) -> tuple[Parts, ...]:
        """Priced forward passes, one per kind of stage, a row per distinct shape."""
        return tuple(self.prices.body(body) for body in self.bodies("F"))

    @cached_property
    def backward(self) -> tuple[Parts, ...]:
        """Priced backward passes."""
        return tuple(self.prices.body(body) for body in self.bodies("B"))

    @cached_property
    def forward_s(self) -> Floats:
        """Seconds of the forward pass of every plan and stage: (n, K)."""
        return self.stage_times(self.forward)

    @cached_property
    def backward_s(self) -> Floats:
        """Seconds of the backward pass: (n, K)."""
        return self.stage_times(self.backward)

    def stage_times(self, passes: tuple[Parts, ...]) -> Floats:
        """Seconds of a pass for every plan and stage: (n, K)."""
        return self.spread([self.per_plan(sum(parts.values(), start=0.0)) for parts in passes])

    def spread(self, per_kind: list[Floats]) -> Floats:
        """(n,) per kind of stage → (n, K)."""
        return np.stack(per_kind, 1)[:, self.kind_of]

    def per_rank(self, stages: Floats) -> Floats:
        """Sum over the chunks of a rank: (n, K) → (n, P)."""
        return stages.reshape(len(stages), self.chunks, self.ranks).sum(1)

    def seconds(self, collectives: Callable[[Elements], tuple[Collective, ...]]) -> Floats:
        """Seconds of the collectives that each stage's elements call for: (n, K)."""
        per_kind = []
        for elements in self.kind_elements:
            time = np.zeros(len(self.plans))
            for collective in collectives(elements):
                size, local = self.mesh.group(collective.axes)
                time = time + self.forms.collective(collective.kind, collective.logical_bytes, size, local)
            per_kind.append(time)
        return self.spread(per_kind)
