"""The plans that launchers of other frameworks can say: one layout, and one recomputation for all layers or for the
first n of each stage.

``read_uniform`` turns a long plan into the few numbers that exporters write. The plan is legal and its target has said
that it can do it (``frameworks/exporting/target_rules.py``).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import ExpertGrid, Layout, LongPlan, States
from meshwright.plans.forms.short import Recompute, ShardingName
from meshwright.plans.layers.first_recomputed import nearest_first
from meshwright.plans.layers.layer_assignment import StageLayers, stage_layers
from meshwright.plans.layers.recompute_by_layer import layer_recomputes


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPlan:
    """A plan with one layout. ``order`` leaves out the axes of degree 1.

    ``recompute`` is that of all layers; of the first ``recomputed_first`` of each stage where that is a number.

    ``sharding`` is what is left of the plan's name when the sharded axes have one rank: ``none``.
    """

    long: LongPlan
    pp: int
    dp_replicate: int
    dp_shard: int
    cp: int
    tp: int
    experts: ExpertGrid | None
    sequence_parallel: bool
    order: tuple[str, ...]
    sharding: ShardingName
    recompute: Recompute
    recomputed_first: int | None
    stages: tuple[StageLayers, ...]
    next_token_layers: int

    @property
    def dp(self) -> int:
        """Ranks that see different sequences."""
        return self.dp_replicate * self.dp_shard

    @property
    def devices(self) -> int:
        """Ranks of the plan."""
        return self.pp * self.dp * self.cp * self.tp

    @property
    def micro_batch(self) -> int:
        """Sequences of one micro-batch."""
        return self.long.pipeline.micro_batch

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one step on one rank."""
        return self.long.workload.global_batch // (self.dp * self.micro_batch)

    @property
    def virtual_stages(self) -> int:
        """Stages per pipeline rank."""
        return len(self.stages) // self.pp

    @property
    def schedule(self) -> str:
        """Name of the pipeline schedule; what is no name is among ``problems``."""
        return self.long.pipeline.schedule.choice.name

    def next_tokens_of(self, stage: StageLayers) -> int:
        """Layers of a stage that predict further tokens: they are the model's last."""
        first = self.stages[-1].last - self.next_token_layers
        return max(0, stage.last - max(stage.first, first))

    def summary(self) -> str:
        """Return the plan in one line."""
        degrees = {"pp": self.pp, "dp_replicate": self.dp_replicate, "dp_shard": self.dp_shard}
        degrees |= {"cp": self.cp, "tp": self.tp}
        if self.experts:
            degrees |= {"ep": self.experts.ep, "etp": self.experts.etp}
        layout = " ".join(f"{axis}={degree}" for axis, degree in degrees.items())
        recompute = self.recompute if isinstance(self.recompute, str) else "+".join(self.recompute)
        if self.recomputed_first is not None:
            recompute += f" of the first {self.recomputed_first} layers of each stage"
        work = self.long.workload
        return (
            f"{_plain(self.long.model)} on {_plain(self.long.cluster)}: {layout} {self.sharding} "
            f"{self.schedule} x{self.virtual_stages} micro_batch={self.micro_batch} recompute={recompute} "
            f"seq_len={work.seq_len} global_batch={work.global_batch} {work.precision}"
        )


def read_uniform(plan: LongPlan, model: ModelGraph) -> UniformPlan:
    """Return what exporters write of ``plan``."""
    layout, pp = next(iter(plan.layouts.values())), plan.pipeline.ranks
    layers, arch = len(model.layer_blocks), model.architecture
    of_layers, stages = layer_recomputes(plan, layers), stage_layers(plan.pipeline, layers)
    alike = len(set(of_layers)) == 1
    return UniformPlan(
        long=plan,
        pp=pp,
        **layout.grid.model_dump(),
        experts=layout.experts,
        sequence_parallel=layout.sequence_parallel and layout.grid.tp > 1,
        order=_used(layout.order, layout.grid.model_dump() | {"pp": pp}),
        sharding=_sharding(plan, layout),
        recompute=of_layers[0] if alike else "full",
        recomputed_first=None if alike else nearest_first(of_layers, stages, arch.main_layers),
        stages=stages,
        next_token_layers=arch.next_token_layers,
    )


def _plain(name: str) -> str:
    """Return a name without line breaks, for use in a comment."""
    return " ".join(name.split())


def _used(order: Iterable[str], sizes: dict[str, int]) -> tuple[str, ...]:
    return tuple(axis for axis in order if sizes[axis] > 1)


def _sharded_axes(plan: LongPlan, layout: Layout, state: str) -> frozenset[str]:
    axes = getattr(plan.states, state)
    return frozenset(axis for axis in axes if getattr(layout.grid, axis) > 1)


def _sharding(plan: LongPlan, layout: Layout) -> ShardingName:
    """Return the plan's sharding if some state is sharded, of attention or of experts on their own mesh."""
    dense = any(_sharded_axes(plan, layout, state) for state in States.model_fields)
    experts = layout.experts is not None and layout.experts.edp_shard > 1
    return plan.sharding if dense or experts else "none"
