"""Shrink a plan of several layouts to a few plans for at most eight ranks with the same features.

Every layout keeps its axes, of degree 2, and all of them fill the same ranks: one with fewer axes has a longer one.
Three features meet in one of the plans where ranks are enough (``plans/shrink/covering_sets.py``). Of the layers stay
those at both ends of every run with one layout and one recomputation, and the first ones of stages, so that layouts
change inside of stages and between them as in the plan.
"""

from collections.abc import Sequence
from itertools import groupby
from math import prod

from meshwright.model.graph import ModelGraph
from meshwright.model.transforms.shrunk_model import shrunk_model
from meshwright.plans.context_parallel import shortest
from meshwright.plans.forms.conversion import ZERO_STATES, expand_layout, short_of_only_layout
from meshwright.plans.forms.long import LayerRule, Layout, LongPlan
from meshwright.plans.forms.short import (
    DEFAULT_RANK_ORDER,
    ShardingName,
    ShortLayout,
    ShortPlan,
    WorkloadSpec,
)
from meshwright.plans.layers.layer_assignment import chain_layers, layer_rules
from meshwright.plans.layers.plan_of_layout import plan_of_layout, plan_of_main_layout, sequences_together
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.shrink.covering_sets import covering
from meshwright.plans.shrink.features import AXIS_DEGREE, Feature, context_of, features
from meshwright.plans.shrink.small_encoder_input import with_encoder_inputs
from meshwright.plans.shrink.small_plans import (
    DEVICE,
    EXPERT_AXES,
    MICRO_BATCHES,
    SEQ_LEN,
    STAGE_AXES,
    SmallPlan,
    SmallPlans,
)
from meshwright.plans.shrink.small_shares import with_small_shares
from meshwright.schedules.choice import stage_placement
from meshwright.stack.stack import OWN_STACK

OF_LAYOUT = ("dp_shard", "dp_replicate", "tp", "cp", "cp_ulysses", "long_ring", "ep", "etp", "expert_order")
"""Features that each layout has of its own."""
ON_STAGE = ("dp_shard", "dp_replicate", "tp", "cp", "cp_ulysses", "long_ring")


def small_layout_plans(plan: LongPlan, model: ModelGraph, ranks: int) -> SmallPlans:
    """Plans of at most ``ranks`` ranks for a plan of several layouts that the runtime can run."""
    main = short_of_only_layout(plan_of_main_layout(plan))
    active = {
        name: one
        for name, one in features(main, plan, model).items()
        if name not in (*OF_LAYOUT, "rank_order")
    }
    active["layouts"] = Feature(f"layers of {len(plan.layouts)} layouts")
    meshes: list[list[str]] = []
    for name in plan.layouts:
        own = plan_of_layout(plan, name)
        found = features(short_of_only_layout(own), own, model)
        active |= {
            f"{name} {of}": one for of, one in found.items() if of in OF_LAYOUT and of != "expert_order"
        }
        meshes += [[f"{name} {of}" for of in mesh] for mesh in (ON_STAGE, EXPERT_AXES)]
    chosen = covering({name: feature.ranks for name, feature in active.items()}, ranks, meshes)
    plans = tuple(_small(plan, main, model, names) for names in chosen.sets)
    return SmallPlans(active, chosen, plans)


def _small(plan: LongPlan, main: ShortPlan, model: ModelGraph, chosen: Sequence[str]) -> SmallPlan:
    """Build the small plan that has the ``chosen`` features."""
    pp = AXIS_DEGREE if "pp" in chosen else 1
    short = {name: short_of_only_layout(plan_of_layout(plan, name)) for name in plan.layouts}
    layouts = {name: _layout(of, name, chosen) for name, of in short.items()}
    size = max(max(_size(of), of.ep * of.etp) for of in layouts.values())
    layouts = {name: _filled(of, short[name].layout, size) for name, of in layouts.items()}
    chunks = min(main.pipeline.virtual_stages, AXIS_DEGREE) if pp > 1 else 1
    layers, counts = _layers(plan, model.architecture.layers, pp * chunks)
    widest = {axis: max(getattr(of, axis) for of in layouts.values()) for axis in ("tp", *EXPERT_AXES)}
    heads = max(of.tp * of.context_in_full.heads(of.cp) for of in layouts.values())
    small = shrunk_model(
        model,
        layers=len(layers),
        last=counts[-1],
        tp=heads,
        ep=widest["ep"],
        etp=widest["etp"],
        seq_len=SEQ_LEN,
        full_seq_len=plan.workload.seq_len,
    )
    experts = small.architecture.moe is not None
    own = {name: _long_layout(of, short[name], experts) for name, of in layouts.items()}
    own = with_small_shares(own, plan)
    rules = {str(at): _rule(plan, layer, model.architecture.layers) for at, layer in enumerate(layers)}
    ends = {key: plan.layers[key] for key in ("embed", "head")}
    pipeline = plan.pipeline.model_copy(
        update={
            "stages": written_stages(counts),
            "placement": stage_placement(plan.pipeline.schedule.choice, pp, chunks),
            "micro_batch": min(plan.pipeline.micro_batch, 2),
        }
    )
    long = plan.model_copy(
        update={
            "cluster": f"{DEVICE} x {pp * size}",
            "stack": OWN_STACK,
            "layouts": own,
            "layers": {"embed": ends["embed"], **rules, "head": ends["head"]},
            "pipeline": pipeline,
        }
    )
    batch = sequences_together(long) * MICRO_BATCHES * pp
    workload = WorkloadSpec(
        seq_len=SEQ_LEN, global_batch=batch, documents=plan.workload.documents and SEQ_LEN
    )
    workload = with_encoder_inputs(workload, small.architecture)
    return SmallPlan(long.model_copy(update={"workload": workload}), small, tuple(chosen))


def _layout(short: ShortPlan, name: str, chosen: Sequence[str]) -> ShortLayout:
    """Return a layout with the chosen ones of its axes."""
    here = {feature.removeprefix(f"{name} ") for feature in chosen if feature.startswith(f"{name} ")}
    degrees = {
        axis: AXIS_DEGREE if axis in here else 1 for axis in ("dp_shard", "dp_replicate", "tp", *EXPERT_AXES)
    }
    cp, context = context_of(short.layout.context_in_full, here)
    return ShortLayout(
        pp=1,
        cp=cp,
        context=shortest(context) if cp > 1 else None,
        sequence_parallel=bool(short.layout.sequence_parallel) and degrees["tp"] > 1,
        rank_order=DEFAULT_RANK_ORDER,
        dp_shard=degrees["dp_shard"],
        dp_replicate=degrees["dp_replicate"],
        tp=degrees["tp"],
        ep=degrees["ep"],
        etp=degrees["etp"],
    )


def _size(layout: ShortLayout) -> int:
    return prod(getattr(layout, axis) for axis in STAGE_AXES)


def _filled(layout: ShortLayout, whole: ShortLayout, size: int) -> ShortLayout:
    """Return a layout with longer axes of the plan's, until it fills ``size`` ranks."""
    while _size(layout) < size:
        active = [axis for axis in STAGE_AXES if axis != "cp" and getattr(whole, axis) > 1] or [
            "dp_replicate"
        ]
        axis = next((one for one in active if getattr(layout, one) == 1), active[0])
        longer = {axis: AXIS_DEGREE * getattr(layout, axis)}
        if axis == "tp":
            longer["sequence_parallel"] = bool(whole.sequence_parallel)
        layout = layout.model_copy(update=longer)
    return layout


def _long_layout(layout: ShortLayout, of: ShortPlan, experts: bool) -> Layout:
    """Return the long form of a layout with its states and gathers."""
    cut = layout.dp_shard > 1 or layout.cp > 1
    sharding: ShardingName = of.sharding if cut else "none"
    long = expand_layout(layout, sharding, has_experts=experts)
    return long.model_copy(update={"states": ZERO_STATES[sharding], "gather": of.gather if cut else None})


def _rule(plan: LongPlan, layer: int, layers: int) -> LayerRule:
    rule = layer_rules(plan, layers).layers[layer]
    assert rule is not None, "every layer has a rule"
    return rule


def _layers(plan: LongPlan, layers: int, stages: int) -> tuple[list[int], tuple[int, ...]]:
    """Return the layers of the plan that a small one has, and how many of them each of its stages has."""
    rules = layer_rules(plan, layers).layers
    kept: set[int] = set()
    for _, run in groupby(range(layers), key=rules.__getitem__):
        members = list(run)
        kept |= {members[0], members[-1]}
    held = [stage for stage in chain_layers(plan.pipeline, layers) if stage.count]
    picked = [held[round(at * (len(held) - 1) / max(1, stages - 1))].first for at in range(1, stages)]
    firsts = sorted({0, *picked})
    kept |= set(firsts)
    chosen = sorted(kept)
    bounds = [*firsts[1:], layers]
    counts = [
        sum(first <= layer < stop for layer in chosen) for first, stop in zip(firsts, bounds, strict=True)
    ]
    return chosen, tuple(counts)
