"""Convert the short form of a plan to the long form, and back if the short form can express it.

The law: ``expand(shorten(expand(p))) == expand(p)``.

The defaults, in the order of the fields of the long form:

* sharding ``none``: all of data parallelism is dp_replicate, dp_shard is 1; with ``synchronise`` both are as written;
* sequence_parallel: on when tp > 1; context: a ring;
* experts' mesh, only for a model with experts or ep·etp > 1: edp = dp_replicate·dp_shard·cp·tp / (ep·etp),
  edp_replicate = gcd(edp, dp_replicate) (all of edp where nothing is sharded), edp_shard the rest. Where the
  division leaves a rest the mesh is written down too small, and ``plans/rules/check_plan.py`` says so;
* states: zero1 shards the optimizer over dp_shard and cp, zero2 gradients too, zero3 parameters too;
* gather: per-step for zero3 with pp > 1, per-layer otherwise;
* layers: one layout ``main`` for embed, all layers and head;
* a form of the vocabulary: embedding and head are spread over pp and tp;
* dtypes: as written; the stack's where nothing is (``stack/state_types.py``);
* placement: the schedule's: stage i on pipeline rank i mod pp, or there and back for V schedules.
"""

import re
from dataclasses import dataclass
from math import gcd, prod

from meshwright.errors import PlanError, Problem
from meshwright.model.architecture import Architecture
from meshwright.plans.context_parallel import shortest
from meshwright.plans.forms.long import (
    SPREAD,
    DeviceGroup,
    ExpertGrid,
    Grid,
    LayerRule,
    Layout,
    LongPlan,
    Pipeline,
    ShardAxis,
    States,
)
from meshwright.plans.forms.short import (
    MAX_DEGREE,
    Schedule,
    ShardingName,
    ShortLayout,
    ShortPipeline,
    ShortPlan,
    default_gather,
)
from meshwright.schedules.choice import stage_placement

MAIN = "main"
MAX_STAGES = 2**14
_SHARD: tuple[ShardAxis, ...] = ("dp_shard", "cp")
ZERO_STATES: dict[ShardingName, States] = {
    "none": States(),
    "zero1": States(optimizer=_SHARD),
    "zero2": States(optimizer=_SHARD, gradient=_SHARD),
    "zero3": States(optimizer=_SHARD, gradient=_SHARD, parameter=_SHARD),
}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts of a model that the defaults depend on."""

    layers: int
    has_experts: bool


def expand(short: ShortPlan, architecture: Architecture) -> LongPlan:
    """Return the long form of ``short`` for ``architecture``. Raise PlanError on degrees beyond reason."""
    return _unfold(short, ModelFacts(architecture.layers, architecture.moe is not None))


def shorten(long: LongPlan) -> ShortPlan | None:
    """Return the short form that expands to ``long``; None where the short form cannot express it."""
    key, pipeline = _only_range(long), long.pipeline
    if set(long.layouts) != {MAIN} or key is None or not pipeline.usual:
        return None
    short = short_of_only_layout(long)
    model = ModelFacts(int(key[3:]) + 1, long.layouts[MAIN].experts is not None)
    return short if not _excesses(short) and _unfold(short, model) == _in_full(long) else None


def short_of_only_layout(long: LongPlan) -> ShortPlan:
    """Return the short plan with the degrees and choices of ``long``'s one layout, without the rest of ``long``."""
    (layout,), pipeline = long.layouts.values(), long.pipeline
    gather = None if long.gather == default_gather(long.sharding, pipeline.ranks) else long.gather
    return ShortPlan(
        plan=long.plan,
        model=long.model,
        cluster=long.cluster,
        workload=long.workload,
        stack=long.stack,
        layout=_short_layout(layout, pipeline.ranks),
        sharding=long.sharding,
        gather=gather,
        pipeline=ShortPipeline(
            schedule=_schedule_in_full(long),
            micro_batch=pipeline.micro_batch,
            virtual_stages=pipeline.virtual_stages,
        ),
        offload=long.offload,
        dtypes=long.dtypes,
        synchronise=long.synchronise,
        recompute=next(rule.recompute for key, rule in long.layers.items() if key not in ("embed", "head")),
    )


def _in_full(long: LongPlan) -> LongPlan:
    """Return the plan with the form of its vocabulary, where that is spread."""
    pipeline = long.pipeline.model_copy(update={"schedule": _schedule_in_full(long)})
    return long.model_copy(update={"pipeline": pipeline})


def _schedule_in_full(long: LongPlan) -> Schedule:
    form = long.choice.vocabulary or long.pipeline.schedule.vocabulary
    return long.pipeline.schedule.model_copy(update={"vocabulary": form})


def shorten_ignoring_layers(long: LongPlan) -> ShortPlan | None:
    """Return the short form of ``long`` with balanced stages and its first rule's recomputation for all layers.

    What is left where only the layers of the stages are written out, and what each layer recomputes.
    """
    ranges = {key: rule for key, rule in long.layers.items() if key not in ("embed", "head")}
    ends = [
        int(key.rpartition("..")[2]) for key in ranges if re.fullmatch(r"([0-9]{1,6}\.\.)?[0-9]{1,6}", key)
    ]
    alike = {rule.model_copy(update={"recompute": "none"}) for rule in ranges.values()}
    if len(ends) < len(ranges) or len(alike) != 1 or {"embed", "head"} - long.layers.keys():
        return None
    one = {"embed": long.layers["embed"], _range(max(ends) + 1): next(iter(ranges.values()))}
    pipeline = long.pipeline.model_copy(update={"stages": "balanced"})
    return shorten(
        long.model_copy(update={"pipeline": pipeline, "layers": one | {"head": long.layers["head"]}})
    )


def _unfold(short: ShortPlan, model: ModelFacts) -> LongPlan:
    problems = _excesses(short)
    if problems:
        raise PlanError(problems)
    pipeline, pp = short.pipeline, short.layout.pp
    schedule = pipeline.schedule_in_full
    vocabulary = SPREAD if schedule.vocabulary else None
    return LongPlan(
        plan=short.plan,
        model=short.model,
        cluster=short.cluster,
        workload=short.workload,
        stack=short.stack,
        groups={"all": DeviceGroup()},
        layouts={MAIN: _layout(short, model)},
        states=ZERO_STATES[short.sharding],
        gather=short.gather or default_gather(short.sharding, pp),
        layers={
            "embed": LayerRule(layout=MAIN, vocabulary=vocabulary),
            _range(model.layers): LayerRule(layout=MAIN, recompute=short.recompute),
            "head": LayerRule(layout=MAIN, vocabulary=vocabulary),
        },
        pipeline=Pipeline(
            placement=stage_placement(schedule.choice, pp, pipeline.virtual_stages),
            micro_batch=pipeline.micro_batch,
            schedule=schedule,
        ),
        offload=short.offload,
        dtypes=short.dtypes,
        synchronise=short.synchronise,
    )


def _layout(short: ShortPlan, model: ModelFacts) -> Layout:
    synchronised = bool(short.synchronise)
    return expand_layout(short.layout, short.sharding, has_experts=model.has_experts, keeps_axes=synchronised)


def expand_layout(
    layout: ShortLayout, sharding: ShardingName, *, has_experts: bool, keeps_axes: bool = False
) -> Layout:
    """Return a layout with the defaults of a model with or without experts.

    ``keeps_axes``: dp_shard stays an axis where nothing is sharded, since entries of ``synchronise`` may name it.
    """
    whole = sharding == "none" and not keeps_axes
    grid = Grid(
        dp_replicate=layout.dp_replicate * (layout.dp_shard if whole else 1),
        dp_shard=1 if whole else layout.dp_shard,
        cp=layout.cp,
        tp=layout.tp,
    )
    meshed = has_experts or layout.ep * layout.etp > 1
    return Layout(
        grid=grid,
        order=layout.rank_order,
        node_order=layout.node_order,
        expert_order=layout.expert_order,
        experts=expert_grid(grid, layout.ep, layout.etp, whole) if meshed else None,
        sequence_parallel=layout.tp > 1 if layout.sequence_parallel is None else layout.sequence_parallel,
        context=shortest(layout.context),
    )


def expert_grid(grid: Grid, ep: int, etp: int, unsharded: bool) -> ExpertGrid:
    """Return the default expert mesh over the ranks of ``grid``; ``unsharded``: no state is sharded."""
    ranks = grid.dp_replicate * grid.dp_shard * grid.cp * grid.tp
    edp = max(1, ranks // (ep * etp))
    replicas = edp if unsharded else gcd(edp, grid.dp_replicate)
    return ExpertGrid(ep=ep, etp=etp, edp_replicate=replicas, edp_shard=edp // replicas)


def _excesses(short: ShortPlan) -> list[Problem]:
    """Degrees that no machine has, refused before anything of their size is made."""
    layout, virtual = short.layout, short.pipeline.virtual_stages
    degrees = (layout.pp, layout.dp_replicate, layout.dp_shard, layout.cp, layout.tp)
    devices, stages = prod(degrees), layout.pp * virtual
    problems = []
    if devices > MAX_DEGREE:
        product = "·".join(map(str, degrees))
        rule = f"pp·dp_replicate·dp_shard·cp·tp = {product} = {devices} > {MAX_DEGREE} devices"
        problems.append(
            Problem(
                "layout",
                devices,
                rule,
                _halved(dict(zip(("pp", "dp_replicate", "dp_shard", "cp", "tp"), degrees, strict=True))),
            )
        )
    if stages > MAX_STAGES:
        rule = f"pp·virtual_stages = {layout.pp}·{virtual} = {stages} > {MAX_STAGES} stages"
        problems.append(
            Problem(
                "pipeline.virtual_stages", virtual, rule, f"virtual_stages: {max(1, MAX_STAGES // layout.pp)}"
            )
        )
    return problems


def _halved(degrees: dict[str, int]) -> str:
    """Return the largest degree reduced until the product is within the limit, if that is enough."""
    axis = max(degrees, key=lambda name: degrees[name])
    return f"{axis}: {max(1, degrees[axis] * MAX_DEGREE // prod(degrees.values()))}"


def _range(layers: int) -> str:
    return f"0..{layers - 1}"


def _only_range(long: LongPlan) -> str | None:
    """Return the key of the only rule for layers, if it is 0..N."""
    keys = [key for key in long.layers if key not in ("embed", "head")]
    return keys[0] if len(keys) == 1 and re.fullmatch(r"0\.\.[0-9]{1,6}", keys[0]) else None


def _short_layout(layout: Layout, pp: int) -> ShortLayout:
    grid, experts = layout.grid, layout.experts or ExpertGrid()
    return ShortLayout(
        pp=pp,
        dp_replicate=grid.dp_replicate,
        dp_shard=grid.dp_shard,
        cp=grid.cp,
        tp=grid.tp,
        ep=experts.ep,
        etp=experts.etp,
        sequence_parallel=layout.sequence_parallel,
        rank_order=layout.order,
        node_order=layout.node_order,
        expert_order=layout.expert_order,
        context=layout.context,
    )
