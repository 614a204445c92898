"""One plan as the limits of stacks see it: values by column of ``PlanArrays``, and derived values."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.architecture import Architecture
from meshwright.plans.choices.gather import NEVER
from meshwright.plans.context_parallel import Context
from meshwright.plans.forms.host_offload import Offload, Share
from meshwright.plans.forms.long import DEFAULT_EXPERT_ORDER, LongPlan, Pipeline
from meshwright.plans.forms.short import Axis, Recompute, Schedule, ShardingName
from meshwright.plans.layers.layer_assignment import StageLayers, chain_layers, layer_rules, stage_layers
from meshwright.schedules.choice import ScheduleChoice, stage_placement
from meshwright.stack.stack import Stack
from meshwright.workload.workload import Workload

Flags = bool | np.bool_ | NDArray[np.bool_]
"""Of one plan, or of an array of them."""


class PlanValues:
    """The values of one plan. One that was not given raises AttributeError when it is read.

    ``arch``, ``workload`` and ``stack`` are always there; the other annotated names are columns. Degrees may be arrays,
    for what gives ``Flags``, and for numbers of ranks.
    """

    pp: int
    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int
    ep: int
    etp: int
    micro_batch: int
    virtual_stages: int
    sharding: ShardingName
    gather: str
    schedule: ScheduleChoice
    recompute: Recompute
    order: tuple[Axis, ...]
    offload: Offload
    offloaded_optimizer: Share = "none"
    offloaded_parameters: Share = "none"
    in_chunks: bool = False
    context: Context
    sequence_parallel: bool
    expert_order: tuple[str, ...] = DEFAULT_EXPERT_ORDER
    dtypes: Mapping[str, str] = MappingProxyType({})

    def __init__(self, arch: Architecture, workload: Workload, stack: Stack, **values: Any) -> None:
        self.arch, self.workload, self.stack = arch, workload, stack
        self.__dict__.update(values)

    @property
    def dp(self) -> int:
        """Ranks that see different sequences: dp_replicate·dp_shard."""
        return self.dp_replicate * self.dp_shard

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one step on one rank."""
        return self.workload.global_batch // (self.dp * self.micro_batch)

    @property
    def cuts_sequences(self) -> bool:
        """Sequence parallelism, where tp has ranks for it."""
        return self.tp > 1 and self.sequence_parallel

    @property
    def ranks_of_an_expert(self) -> int:
        """Ranks that have the same part of the same expert: edp_shard·edp_replicate."""
        ranks: int = np.maximum(1, self.dp * self.cp * self.tp // (self.ep * self.etp))
        return ranks

    @cached_property
    def expert_replicas(self) -> int:
        """Copies of each expert's states: edp_replicate of the default mesh, unless the plan has another one."""
        ranks = self.ranks_of_an_expert
        replicas: int = ranks if self.sharding == "none" else np.gcd(ranks, self.dp_replicate)
        return replicas

    @property
    def is_sharded(self) -> Flags:
        """The states are cut over an axis that has a second rank."""
        if self.sharding == "none":
            return False
        dense = self.dp_shard * self.cp > 1
        return dense if self.arch.moe is None else dense | (self.ranks_of_an_expert > self.expert_replicas)

    @property
    def sharded(self) -> ShardingName:
        """The sharding, or ``none`` where no axis that it shards over has a second rank."""
        return self.sharding if self.is_sharded else "none"

    @property
    def used_order(self) -> tuple[str, ...]:
        """Axes of more than one rank, fastest varying first."""
        return tuple(axis for axis in self.order if getattr(self, axis) > 1)

    @property
    def experts_order(self) -> tuple[str, ...]:
        """Axes of more than one rank of the experts' mesh; none for a model without experts."""
        sizes = _expert_sizes(self)
        return () if self.arch.moe is None else tuple(axis for axis in self.expert_order if sizes[axis] > 1)

    def reordered(self, other: Sequence[str]) -> Flags:
        """Return true if axes of more than one rank stand in another order there."""
        return _reordered({axis: getattr(self, axis) for axis in self.order}, self.order, other)

    def experts_reordered(self, other: Sequence[str]) -> Flags:
        """Return true if axes of more than one rank of the experts' mesh stand in another order there."""
        return _reordered(_expert_sizes(self), self.expert_order, other)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline with balanced stages, unless the plan writes others down."""
        return Pipeline(
            placement=stage_placement(self.schedule, self.pp, self.virtual_stages),
            micro_batch=1,
            schedule=Schedule.of(self.schedule),
        )

    @property
    def last_stage(self) -> StageLayers:
        """The layers of the stage with the head."""
        return chain_layers(self.pipeline, self.arch.layers)[-1]

    @property
    def stages(self) -> tuple[StageLayers, ...]:
        """The layers of every stage."""
        return stage_layers(self.pipeline, self.arch.layers)


def values_of(plan: LongPlan, arch: Architecture, workload: Workload, stack: Stack) -> PlanValues:
    """Return the values of a plan with one layout. Of several recomputations the first layer's stands for all."""
    (layout,), pipeline = plan.layouts.values(), plan.pipeline
    experts = layout.experts
    rules = layer_rules(plan, arch.layers)
    first = next((rule for rule in rules.layers if rule is not None), None)
    return PlanValues(
        arch,
        workload,
        stack,
        **layout.grid.model_dump(),
        pp=pipeline.ranks,
        ep=experts.ep if experts else 1,
        etp=experts.etp if experts else 1,
        micro_batch=pipeline.micro_batch,
        virtual_stages=pipeline.virtual_stages,
        sharding=plan.sharding,
        gather=plan.gather if plan.sharding == "zero3" else NEVER,
        schedule=plan.choice,
        recompute=first.recompute if first else "none",
        order=layout.order,
        offload=plan.offload.of_activations if plan.offload else Offload(),
        offloaded_optimizer=getattr(plan.offload, "optimizer", None) or "none",
        offloaded_parameters=getattr(plan.offload, "parameters", None) or "none",
        in_chunks=plan.in_chunks,
        context=layout.context_in_full,
        sequence_parallel=layout.sequence_parallel,
        dtypes=plan.written_types,
        pipeline=pipeline,
        **(
            {}
            if experts is None
            else {"expert_replicas": experts.edp_replicate, "expert_order": experts.order}
        ),
    )


def _expert_sizes(plan: PlanValues) -> dict[str, int]:
    """Return the sizes of the axes of the experts' mesh."""
    copies = plan.expert_replicas
    sizes = {"ep": plan.ep, "etp": plan.etp, "pp": plan.pp}
    return sizes | {"edp_replicate": copies, "edp_shard": plan.ranks_of_an_expert // copies}


def _reordered(sizes: Mapping[str, int], order: Sequence[str], other: Sequence[str]) -> Flags:
    changed = [pair for pair in combinations(order, 2) if other.index(pair[0]) > other.index(pair[1])]
    return np.any([(sizes[one] > 1) & (sizes[next_] > 1) for one, next_ in changed], axis=0)
