"""The plans that launchers of other frameworks can say: one layout, one rule for all layers.

``read_uniform`` turns a long plan into the few numbers that exporters write, and lists what no target has a
word for. The plan is legal (``plan/check.py`` has spoken before).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from meshwright.cluster.graph import Cluster
from meshwright.errors import Problem, UnsupportedError
from meshwright.model.graph import ModelGraph
from meshwright.model.next_tokens import ASKED
from meshwright.plan.case import in_long_words
from meshwright.plan.context import Context
from meshwright.plan.expand import shorten
from meshwright.plan.layers import StageLayers, layer_rules, stage_layers
from meshwright.plan.long import ExpertGrid, LayerRule, Layout, LongPlan, States
from meshwright.plan.short import Gather, Recompute, ShardingName


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformPlan:
    """A plan with one layout. ``order`` and ``expert_order`` leave out the axes of degree 1.

    ``sharding`` is what is left of the plan's name when the sharded axes have one rank: ``none``.
    ``problems`` is what no target can say; an exporter adds its own and raises them all.
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
    expert_order: tuple[str, ...]
    sharding: ShardingName
    recompute: Recompute
    stages: tuple[StageLayers, ...]
    next_token_layers: int
    problems: tuple[Problem, ...]

    @property
    def layout_name(self) -> str:
        """What the plan calls its layout."""
        return next(iter(self.long.layouts))

    @property
    def context(self) -> Context:
        """How the ranks of cp bring queries to keys."""
        return self.long.layouts[self.layout_name].context_in_full

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

    @property
    def gather(self) -> Gather:
        """When sharded parameters are gathered."""
        return self.long.gather

    @property
    def looped(self) -> bool:
        """Stage i is on pipeline rank i mod pp."""
        return all(rank == i % self.pp for i, rank in enumerate(self.long.pipeline.placement))

    def next_tokens_of(self, stage: StageLayers) -> int:
        """Layers of a stage that predict further tokens: they are the model's last."""
        first = self.stages[-1].last - self.next_token_layers
        return max(0, stage.last - max(stage.first, first))

    def sharded_axes(self, state: str) -> frozenset[str]:
        """The axes of more than one rank that shard ``parameter``, ``gradient`` or ``optimizer``."""
        return _sharded_axes(self.long, next(iter(self.long.layouts.values())), state)

    @property
    def shard_axes(self) -> frozenset[str]:
        """The axes of more than one rank among dp_shard and cp: what frameworks shard states over."""
        return frozenset(axis for axis in ("dp_shard", "cp") if getattr(self, axis) > 1)

    def summary(self) -> str:
        """The plan in one line."""
        degrees = {"pp": self.pp, "dp_replicate": self.dp_replicate, "dp_shard": self.dp_shard}
        degrees |= {"cp": self.cp, "tp": self.tp}
        if self.experts:
            degrees |= {"ep": self.experts.ep, "etp": self.experts.etp}
        layout = " ".join(f"{axis}={degree}" for axis, degree in degrees.items())
        recompute = self.recompute if isinstance(self.recompute, str) else "+".join(self.recompute)
        work = self.long.workload
        return (
            f"{_plain(self.long.model)} on {_plain(self.long.cluster)}: {layout} {self.sharding} "
            f"{self.schedule} x{self.virtual_stages} micro_batch={self.micro_batch} recompute={recompute} "
            f"seq_len={work.seq_len} global_batch={work.global_batch} {work.precision}"
        )


def read_uniform(
    plan: LongPlan, model: ModelGraph, cluster: Cluster, *, next_tokens: bool = False
) -> UniformPlan:
    """What exporters write of ``plan``; its ``problems`` say what no target can be told.

    ``next_tokens``: the target has words for layers that predict further tokens.
    """
    layout, pp = next(iter(plan.layouts.values())), plan.pipeline.ranks
    rules = layer_rules(plan, len(model.layer_blocks))
    recomputes = {rule.recompute if rule else "none" for rule in rules.layers}
    uniform = UniformPlan(
        long=plan,
        pp=pp,
        **layout.grid.model_dump(),
        experts=layout.experts,
        sequence_parallel=layout.sequence_parallel and layout.grid.tp > 1,
        order=_used(layout.order, layout.grid.model_dump() | {"pp": pp}),
        expert_order=_expert_order(layout, pp),
        sharding=_sharding(plan, layout),
        recompute=next(iter(recomputes)) if len(recomputes) == 1 else "none",
        stages=stage_layers(plan.pipeline, len(model.layer_blocks)),
        next_token_layers=model.architecture.next_token_layers,
        problems=(
            *_form_problems(plan),
            *(() if next_tokens else _next_token_problems(model)),
            *_rule_problems(rules.embed, rules.head, recomputes),
        ),
    )
    return replace(uniform, problems=(*uniform.problems, *_fit_problems(uniform, cluster)))


def unsupported_error(plan: LongPlan, problems: Sequence[Problem]) -> UnsupportedError:
    """The error with ``problems`` in the words of the plan: of its short form where it has one."""
    if shorten(plan) is None:
        name = next(iter(plan.layouts))
        return UnsupportedError(in_long_words(problem, name) for problem in problems)
    said = [_in_short_words(problem, plan) for problem in problems]
    return UnsupportedError(problem for i, problem in enumerate(said) if problem not in said[:i])


def _in_short_words(problem: Problem, plan: LongPlan) -> Problem:
    """A problem with a key of the long form by the key of the short one that it follows from."""
    field = problem.field
    if field.startswith("layers.") and field.endswith(".vocabulary"):
        form = plan.choice.vocabulary
        return replace(problem, field="pipeline.schedule.vocabulary", value=form, suggestion="take it out")
    if field == "pipeline.placement":
        name = plan.pipeline.schedule.name
        return replace(
            problem, field="pipeline.schedule", value=name, suggestion="schedule: interleaved-1f1b"
        )
    (layout,) = plan.layouts.values()
    if field.endswith(".experts.edp_replicate") and layout.experts:
        return replace(problem, field="layout.ep", value=layout.experts.ep)
    return problem


def _plain(name: str) -> str:
    """A name without line breaks, fit for a comment."""
    return " ".join(name.split())


def _used(order: Iterable[str], sizes: dict[str, int]) -> tuple[str, ...]:
    return tuple(axis for axis in order if sizes[axis] > 1)


def _expert_order(layout: Layout, pp: int) -> tuple[str, ...]:
    if layout.experts is None:
        return ()
    sizes = {**layout.experts.model_dump(exclude={"order"}), "pp": pp}
    return _used(layout.experts.order, sizes)


def _sharded_axes(plan: LongPlan, layout: Layout, state: str) -> frozenset[str]:
    axes = getattr(plan.states, state)
    return frozenset(axis for axis in axes if getattr(layout.grid, axis) > 1)


def _sharding(plan: LongPlan, layout: Layout) -> ShardingName:
    """The plan's name where some state is sharded: that of attention, or that of experts on a mesh of their own."""
    dense = any(_sharded_axes(plan, layout, state) for state in States.model_fields)
    experts = layout.experts is not None and layout.experts.edp_shard > 1
    return plan.sharding if dense or experts else "none"


def _next_token_problems(model: ModelGraph) -> list[Problem]:
    if not model.architecture.next_token_layers:
        return []
    rule = "the target has no words for layers that predict further tokens"
    return [Problem("model", model.name, rule, f"{ASKED}: false in its file")]


def _form_problems(plan: LongPlan) -> list[Problem]:
    """Keys of the long form that launchers of other frameworks have no word for."""
    name, layout = next(iter(plan.layouts.items()))
    schedule = plan.pipeline.schedule
    unsayable = [
        ("layouts", len(plan.layouts) > 1, list(plan.layouts), "export each layout's job by itself"),
        (
            "groups",
            _partial(plan),
            {n: g.devices for n, g in plan.groups.items()},
            'groups: {all: {devices: "*"}}',
        ),
        (f"layouts.{name}.batch_share", layout.batch_share is not None, layout.batch_share, "equal shares"),
        (f"layouts.{name}.state_share", layout.state_share not in (None, "even"), layout.state_share, "even"),
        ("pipeline.schedule.file", schedule.name is None, schedule.file or "lists", "a schedule by name"),
        *((f"pipeline.schedule.{k}", True, v, "leave out") for k, v in schedule.choice.turned.items()),
        (
            "layout.expert_order",
            layout.expert_order is not None,
            "rows of experts",
            "take it out",
        ),
        (
            "offload.activations",
            plan.offload_rule.share > 0,
            str(plan.offload),
            "offload: {activations: none}",
        ),
        (
            "pipeline.schedule.step_validation",
            schedule.step_validation == "after",
            schedule.step_validation,
            "leave out",
        ),
        ("sequence", plan.sequence is not None, plan.sequence and plan.sequence.policy, "cp"),
        ("synchronise", bool(plan.synchronise), [s.state for s in plan.synchronise], "leave out"),
        ("calls", bool(plan.calls), list(plan.calls or ()), "one training call"),
        ("edges", bool(plan.edges), [f"{e.source} -> {e.to}" for e in plan.edges], "leave out"),
        (
            "workload.task",
            plan.workload.task not in ("pretrain", "sft"),
            plan.workload.task,
            "pretrain or sft",
        ),
    ]
    return [
        Problem(field, value, "no target of export can say this", hint)
        for field, present, value, hint in unsayable
        if present
    ]


def _partial(plan: LongPlan) -> bool:
    return any(group.devices != "*" for group in plan.groups.values())


def _rule_problems(
    embed: LayerRule | None, head: LayerRule | None, recomputes: set[Recompute]
) -> list[Problem]:
    """Rules of layers: one recomputation for all, embedding and head plain, vocabulary not over pp."""
    problems = []
    if len(recomputes) > 1:
        shown = sorted("+".join(r) if isinstance(r, tuple) else r for r in recomputes)
        rule = f"{len(recomputes)} different choices; targets have one for all layers"
        problems.append(Problem("layers.recompute", shown, rule, f"recompute: {shown[0]} for all"))
    for name, layer in (("embed", embed), ("head", head)):
        if layer and layer.recompute != "none":
            rule = "targets recompute decoder layers only"
            problems.append(Problem(f"layers.{name}.recompute", layer.recompute, rule, "recompute: none"))
        if layer and layer.vocabulary and "pp" in layer.vocabulary:
            rule = "no target of export spreads the vocabulary over pp"
            problems.append(Problem(f"layers.{name}.vocabulary", layer.vocabulary, rule, "vocabulary: [tp]"))
    return problems


def _fit_problems(plan: UniformPlan, cluster: Cluster) -> list[Problem]:
    """The plan must fill equal nodes: torchrun starts the same number of processes on every node."""
    if len(cluster.pools) > 1:
        kinds = [pool.name for pool in cluster.pools]
        return [Problem("cluster", kinds, "no target of export can use several pools", "one pool")]
    pool, problems = cluster.pool, []
    if plan.devices != pool.count:
        factors = (plan.pp, plan.dp_replicate, plan.dp_shard, plan.cp, plan.tp)
        rule = (
            f"pp·dp_replicate·dp_shard·cp·tp = {'·'.join(map(str, factors))} = {prod(factors)} "
            f"but the cluster has {pool.count} devices"
        )
        problems.append(Problem("layout", plan.devices, rule, f"degrees with product {pool.count}"))
    if pool.count > pool.node.devices and pool.count % pool.node.devices:
        rule = f"{pool.count} devices do not fill nodes of {pool.node.devices}, torchrun needs equal nodes"
        full = pool.count // pool.node.devices * pool.node.devices
        problems.append(Problem("cluster", pool.count, rule, f"{full} devices"))
    return problems
