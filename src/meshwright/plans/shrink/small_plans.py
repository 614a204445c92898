"""Shrink a plan for thousands of devices to a few plans for at most eight ranks with the same features.

Every axis of the plan becomes one of degree 2, or 4 of the pipeline where ranks are left; three axes fit in eight
ranks. With more active axes than fit, a covering set (``plans/shrink/covering_sets.py``) has every three features of
the plan together in one of its plans. The model keeps its structure and loses its size
(``model/transforms/shrunk_model.py``); stages stay uneven where they are, layers recompute what those of the plan
do, and there are micro-batches enough for the schedule to reach its steady state. Lists that are written stay whole:
all their ranks and micro-batches.

What a small plan cannot show: limits of memory, of networks, and of kernels at full width.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from meshwright.model.architecture import Experts
from meshwright.model.graph import ModelGraph
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.model.transforms.shrunk_model import layer_kinds, shrunk_model
from meshwright.plans.context_parallel import Context, shortest
from meshwright.plans.forms.conversion import expand, short_of_only_layout
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import (
    AdapterSpec,
    CapacitySpec,
    Gather,
    Schedule,
    ShortLayout,
    ShortPipeline,
    ShortPlan,
    WorkloadSpec,
)
from meshwright.plans.layers.layout_by_layer import format_layouts
from meshwright.plans.layers.plan_of_layout import sequences_together, uneven_batches
from meshwright.plans.layers.recompute_by_layer import (
    format_layer_recomputes,
    layer_recomputes,
    sampled,
    with_layer_recomputes,
)
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.shrink.covering_sets import Covering, covering
from meshwright.plans.shrink.features import (
    AXIS_DEGREE,
    OFFLOADING_RANKS,
    Feature,
    context_of,
    features,
    micro_batches,
    pipeline_ranks,
    stage_counts,
)
from meshwright.plans.shrink.small_combinations import with_small_numbers
from meshwright.plans.shrink.small_encoder_input import with_encoder_inputs
from meshwright.plans.shrink.small_exchanges import PeriodMap, present_entries
from meshwright.plans.shrink.small_shares import with_small_shares
from meshwright.plans.synchronisation.plan_axes import loose_axes_of_plan
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.schedule_kind import nearest_unit
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK
from meshwright.workload.base_types import QUANTISED
from meshwright.workload.optimizer_choice import ADAMW

STAGE_AXES = ("dp_shard", "dp_replicate", "cp", "tp")
EXPERT_AXES = ("ep", "etp")
"""A second mesh over the ranks of a stage."""
AXES = ("pp", *STAGE_AXES)
SEQ_LEN = 16
MICRO_BATCHES = 2
DROPPING = 0.75
"""Experts with so many places for a mean token drop some, however balanced they are."""
ADAPTER_RANK = 2
USUAL = ScheduleChoice("1f1b")
LEAST_LAYERS = 2
DEVICE = "h100-sxm-80gb"
"""Lowering a plan asks a cluster for its number of devices, and how many of them a node has."""


@dataclass(frozen=True)
class SmallPlan:
    """A plan with the model that it is for, and the features of the large plan that meet in it.

    ``node``: the devices of each of its nodes, None for the usual ones.
    """

    long: LongPlan
    model: ModelGraph
    features: tuple[str, ...]
    node: int | None = None

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        layout = next(iter(self.long.layouts.values()))
        return self.long.pipeline.ranks * prod(layout.grid.model_dump().values())

    @property
    def text(self) -> str:
        """The plan in a line."""
        if len(self.long.layouts) > 1:
            return format_layouts(self.long)
        short = short_of_only_layout(self.long)
        degrees = {axis: getattr(short.layout, axis) for axis in (*AXES, *EXPERT_AXES)}
        axes = " ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1)
        recomputed = format_layer_recomputes(layer_recomputes(self.long, self.model.architecture.layers))
        nodes = f"nodes of {self.node}" if self.node else ""
        return ", ".join(filter(None, (axes or "one device", nodes, *_choices(short, self.long, recomputed))))


@dataclass(frozen=True)
class SmallPlans:
    """``features`` of the large plan, what of their combinations is covered, and the plans that do it."""

    features: Mapping[str, Feature]
    covering: Covering
    plans: tuple[SmallPlan, ...]


def small_plans(plan: LongPlan, model: ModelGraph, ranks: int, *, forwarding: bool = False) -> SmallPlans:
    """Plans of at most ``ranks`` ranks for a plan of one layout that the runtime can run.

    ``forwarding``: its copies of tokens go from node to node, and are handed on inside of them.
    """
    short = short_of_only_layout(plan)
    active = features(short, plan, model, forwarding=forwarding)
    tight = [axis for axis in STAGE_AXES if axis not in loose_axes_of_plan(plan)]
    found = covering(
        {name: feature.ranks for name, feature in active.items()}, ranks, meshes=(tight, EXPERT_AXES)
    )
    plans = tuple(
        _small(short, plan, model, {name: active[name] for name in chosen}, ranks) for chosen in found.sets
    )
    return SmallPlans(active, found, plans)


def _small(
    short: ShortPlan, plan: LongPlan, model: ModelGraph, chosen: Mapping[str, Feature], ranks: int
) -> SmallPlan:
    """Build the small plan that has the ``chosen`` features."""
    degrees = _degrees(short, chosen, ranks, loose_axes_of_plan(plan))
    _, context = context_of(short.layout.context_in_full, chosen)
    schedule, chunks = _schedule(short, degrees["pp"])
    count = _micro_batches(micro_batches(short, plan), short, schedule, degrees["pp"])
    stages = degrees["pp"] * chunks // schedule.kind.chains
    recomputes = layer_recomputes(plan, model.architecture.layers)
    kinds = max(layer_kinds(model.architecture), len(set(recomputes)))
    entries = present_entries(plan.synchronise, degrees)
    counts = _small_counts(stage_counts(plan, model), stages, kinds)
    small = shrunk_model(
        model,
        layers=sum(counts),
        last=counts[-1],
        tp=degrees["tp"] * context.heads(degrees["cp"]),
        ep=degrees["ep"],
        etp=degrees["etp"],
        seq_len=SEQ_LEN,
        full_seq_len=short.workload.seq_len,
        block=_block(short.workload.adapter),
    )
    pipeline = ShortPipeline(
        schedule=Schedule.of(_small_knobs(short, schedule, (degrees["pp"], chunks), count)),
        micro_batch=min(short.pipeline.micro_batch, 2),
        virtual_stages=chunks,
    )
    one = _small_short(short, plan, degrees, context, pipeline, count)
    small_of = PeriodMap.of(plan.synchronise).small
    exchanges = tuple(
        with_small_numbers(
            small_of(entry, small.architecture.layers),
            getattr(short.layout, entry.axis),
            degrees[entry.axis],
        )
        for entry in entries
    )
    one = one.model_copy(update={"synchronise": exchanges})
    one = one.model_copy(update={"workload": with_encoder_inputs(one.workload, small.architecture)})
    if "expert_order" in chosen and degrees["ep"] > 1 and small.architecture.moe:
        one = _with_order(one, small.architecture.moe)
    long = expand(one, small.architecture)
    long = with_layer_recomputes(long, sampled(recomputes, sum(counts)))
    if len(set(counts)) > 1:
        uneven = long.pipeline.model_copy(update={"stages": written_stages(counts)})
        long = long.model_copy(update={"pipeline": uneven})
    long = _with_shares(long, plan, count)
    node = AXIS_DEGREE * degrees["etp"] if degrees["ep"] > AXIS_DEGREE else None
    return SmallPlan(long, _adapted(small, one.workload.adapter), tuple(chosen), node)


def _with_shares(small: LongPlan, plan: LongPlan, count: int) -> LongPlan:
    """Return a small plan of ``count`` micro-batches with shares of the batch and of states as ``plan`` has."""
    shared = with_small_shares(dict.fromkeys(plan.layouts, *small.layouts.values()), plan)
    ((name, layout),) = zip(small.layouts, shared.values(), strict=True)
    if small.sharding == "none":
        layout = layout.model_copy(update={"state_share": None})
    uneven = small.model_copy(update={"layouts": {name: layout}})
    if not uneven_batches(plan):
        return uneven
    work = small.workload.model_copy(update={"global_batch": sequences_together(uneven) * count})
    return uneven.model_copy(update={"workload": work})


def _adapted(model: ModelGraph, spec: AdapterSpec | None) -> ModelGraph:
    """Return the model with the adapters that a plan trains."""
    return with_adapters(model, spec.adapter, halves=load_stack(OWN_STACK).frozen_apart) if spec else model


def _degrees(
    short: ShortPlan, chosen: Mapping[str, Feature], ranks: int, loose: Collection[str] = ()
) -> dict[str, int]:
    """Degrees of the axes; ranks that are left make the pipeline longer, for its length decides the order of work.

    Where the experts' mesh is larger than the stage's, one of the plan's axes is longer, or there besides. Experts lie
    within an island, so ``loose`` axes do not hold them.
    """
    degrees = {axis: chosen[axis].ranks if axis in chosen else 1 for axis in (*AXES, *EXPERT_AXES)}
    degrees["cp"], _ = context_of(short.layout.context_in_full, chosen)
    experts = prod(degrees[axis] for axis in EXPERT_AXES)
    tight = [axis for axis in STAGE_AXES if axis not in loose]
    while prod(degrees[axis] for axis in tight) < experts:
        active = [axis for axis in tight if getattr(short.layout, axis) > degrees[axis]]
        degrees[active[0]] *= 2
    if "pp" in chosen:
        degrees["pp"] = pipeline_ranks(short)
    if short.pipeline.choice.written:
        return degrees
    longer = degrees["pp"] > 1 and short.layout.pp >= 2 * degrees["pp"]
    if longer and 2 * prod(degrees[axis] for axis in AXES) <= ranks:
        degrees["pp"] *= 2
    return degrees


def _small_short(
    short: ShortPlan,
    plan: LongPlan,
    degrees: Mapping[str, int],
    context: Context,
    pipeline: ShortPipeline,
    count: int,
) -> ShortPlan:
    """Build the short form of a small plan of ``count`` micro-batches; uneven stages come later."""
    sharded, replicas = degrees["dp_shard"] > 1, degrees["dp_replicate"] * degrees["dp_shard"]
    optimizer, shared = short.workload.optimizer, short.workload.optimizer_in_full.splits_perturbations
    if shared and degrees["dp_replicate"] == 1:
        optimizer, shared = short.workload.optimizer_in_full.name, False
    batch = replicas * pipeline.micro_batch * count // (2 if shared else 1)
    return ShortPlan(
        plan=short.plan,
        model=short.model,
        cluster=f"{DEVICE} x {prod(degrees[axis] for axis in AXES)}",
        workload=WorkloadSpec(
            task="pretrain" if short.workload.adapter is None else "lora",
            adapter=_adapter(short),
            seq_len=SEQ_LEN,
            global_batch=batch,
            precision="fp16" if short.dtypes and short.workload.precision == "fp16" else "bf16",
            documents=_documents(short),
            capacity=_capacity(short),
            optimizer=optimizer,
        ),
        stack=OWN_STACK,
        layout=ShortLayout(
            pp=degrees["pp"],
            dp_replicate=degrees["dp_replicate"],
            dp_shard=degrees["dp_shard"],
            cp=degrees["cp"],
            tp=degrees["tp"],
            ep=degrees["ep"],
            etp=degrees["etp"],
            context=shortest(context) if degrees["cp"] > 1 else None,
            sequence_parallel=bool(short.layout.sequence_parallel) and degrees["tp"] > 1,
            rank_order=short.layout.rank_order,
        ),
        sharding=short.sharding if sharded else "none",
        gather=_small_gather(plan, pipeline) if sharded and short.sharding == "zero3" else None,
        pipeline=pipeline,
        recompute=short.recompute,
        offload=_offload(short),
        dtypes=short.dtypes,
    )


def _with_order(one: ShortPlan, moe: Experts) -> ShortPlan:
    """Return the small plan with its experts rotated by another amount in every layer."""
    count = moe.experts
    rows = tuple(tuple((layer - place) % count for place in range(count)) for layer in range(sum(moe.layers)))
    return one.model_copy(update={"layout": one.layout.model_copy(update={"expert_order": rows})})


def _documents(short: ShortPlan) -> int | None:
    """Return a mean document length if the plan packs documents: ``verify`` draws its own."""
    return None if short.workload.documents is None else SEQ_LEN


def _capacity(short: ShortPlan) -> CapacitySpec | None:
    """Return the plan's capacity, lowered until some tokens are dropped."""
    capacity = short.workload.capacity
    if capacity is None:
        return None
    spec = capacity if isinstance(capacity, CapacitySpec) else CapacitySpec(factor=capacity)
    return spec.model_copy(update={"factor": min(spec.factor, DROPPING)})


def _adapter(short: ShortPlan) -> AdapterSpec | None:
    """Return the plan's adapters with a small rank and the same scale."""
    spec = short.workload.adapter
    if spec is None:
        return None
    alpha = None if spec.alpha is None else spec.alpha * ADAPTER_RANK / spec.rank
    return spec.model_copy(update={"rank": ADAPTER_RANK, "alpha": alpha})


def _block(spec: AdapterSpec | None) -> int:
    """Return the elements that no cut of the base may split."""
    base = spec and spec.adapter.quantised
    return QUANTISED[base].block if base else 1


def _offload(short: ShortPlan) -> Offload | None:
    """Return the plan's offload with ``ahead`` = 1: small pipelines hold few passes for long."""
    out = short.offload
    return out.model_copy(update={"ahead": 1}) if out and (out.rule.share or out.shares.some) else None


def _small_gather(plan: LongPlan, pipeline: ShortPipeline) -> Gather | None:
    """As the plan gathers, or as usual where the small schedule has no units to gather for."""
    without_units = pipeline.choice.kind.usual_unit is None
    return None if plan.gather == "per-unit" and without_units else plan.gather


def _schedule(short: ShortPlan, pp: int) -> tuple[ScheduleChoice, int]:
    """Return the schedule and its stages per rank; without a pipeline one stage in the usual order."""
    choice = short.pipeline.choice
    if choice.kind.only:
        return (choice, short.pipeline.virtual_stages) if pp == choice.kind.only[0] else (USUAL, 1)
    if not choice.kind.chunked:
        return choice, 1
    return (choice, 2) if pp > 1 else (USUAL, 1)


def _small_knobs(
    short: ShortPlan, schedule: ScheduleChoice, shape: tuple[int, int], count: int
) -> ScheduleChoice:
    """Scale the schedule's knobs to a small pipeline of ranks × chunks: at least one micro-batch, a legal unit."""
    limit, unit, most, (pp, chunks) = schedule.memory_limit, schedule.unit, schedule.in_flight, shape
    stages = short.layout.pp * short.pipeline.virtual_stages
    if limit is not None:
        limit = max(limit, 1 / pp)
    if unit is not None:
        unit = nearest_unit(schedule.kind, pp, count, max(1, round(unit * pp / short.layout.pp)))
    if most is not None:
        most = max(chunks, round(most * pp * chunks / stages))
    vocabulary, validation = (schedule.vocabulary, schedule.step_validation) if pp > 1 else (None, None)
    return replace(
        schedule,
        memory_limit=limit,
        unit=unit,
        in_flight=most,
        vocabulary=vocabulary,
        step_validation=validation,
    )


def _micro_batches(whole: int, short: ShortPlan, schedule: ScheduleChoice, pp: int) -> int:
    """Two for each pipeline rank, or the ``whole`` number of the plan, in the schedule's multiple."""
    if schedule.kind.only:
        return schedule.kind.only[1]
    multiple = schedule.kind.micro_batch_multiple(pp)
    most = min(whole, MICRO_BATCHES * max(pp, OFFLOADING_RANKS if _offload(short) else 1))
    return max(1, most // multiple) * multiple


def _small_counts(counts: Sequence[int], stages: int, kinds: int) -> tuple[int, ...]:
    """Layers of ``stages`` stages, uneven where ``counts`` are, so many that ``kinds`` of them can differ."""
    if stages == 1:
        return (max(kinds, LEAST_LAYERS),)
    least = min(count for count in counts if count)
    picked = [counts[round(i * (len(counts) - 1) / (stages - 1))] for i in range(stages)]
    small = [min(1, count) + (count > least) for count in picked]
    if len(set(counts)) > 1 and len(set(small)) == 1:
        small[(stages - 1) // 2] += 1
    times = ceil(max(kinds, LEAST_LAYERS) / sum(small))
    return tuple(count * times for count in small)


def _choices(short: ShortPlan, long: LongPlan, recomputed: str) -> list[str]:
    """Describe the choices of a small plan other than its degrees; ``recomputed`` describes recomputation."""
    pipeline, texts = short.pipeline, []
    if short.layout.pp > 1:
        chunks = f" ×{pipeline.virtual_stages}" if pipeline.virtual_stages > 1 else ""
        uneven = "" if long.pipeline.stages == "balanced" else " with uneven stages"
        texts.append(f"{pipeline.choice}{chunks}{uneven}")
    if short.sharding != "none":
        texts.append(short.sharding + (f" {long.gather}" if short.sharding == "zero3" else ""))
    if short.layout.cp > 1 and short.layout.context is not None:
        texts.append(f"context {short.layout.context_in_full}")
    if short.layout.sequence_parallel:
        texts.append("sequence parallel")
    if recomputed != "none":
        texts.append(f"recompute {recomputed}")
    if short.offload is not None:
        texts.append(f"offload {short.offload}")
    if short.dtypes is not None:
        texts.append("dtypes " + ", ".join(f"{key} {word}" for key, word in short.dtypes.written.items()))
    if short.workload.optimizer_in_full != ADAMW:
        texts.append(str(short.workload.optimizer_in_full))
    if short.workload.adapter is not None:
        texts.append(str(short.workload.adapter.adapter))
    if short.workload.documents is not None:
        texts.append("packed documents")
    if short.workload.encoder_tokens is not None:
        texts.append(f"encoder of {short.workload.encoder_tokens} tokens")
    if short.workload.images is not None:
        texts.append(f"images {short.workload.images.images}")
    if short.workload.capacity is not None:
        texts.append("capacity of experts")
    texts.extend(map(_exchange, long.synchronise))
    of = [layout.batch_share for layout in long.layouts.values() if layout.batch_share]
    sequences = " + ".join(map(str, of[0])) if of else str(pipeline.micro_batch)
    texts.append(f"{micro_batches(short, long)} micro-batches of {sequences}")
    return texts


def _exchange(entry: Synchronisation) -> str:
    """Describe an entry of a small plan."""
    often = "" if entry.period == 1 else f" every {entry.period}"
    codec = f" as {entry.compress.codec}" if entry.compress and entry.compress.written else ""
    return f"{entry.state} over {entry.axis}{often}{codec}"
