"""Shrink two plans together, so that both train one small model on equal data, for equal numbers of steps.

Both keep their axes of data parallelism and of experts, of degree 2, their sharding and their exchanges, with one map
of periods (``small_exchanges.py``). Pipelines and axes that cut tensors or sequences are left out: ``verify`` of one
plan proves that they change no number.
"""

from dataclasses import dataclass
from math import lcm, prod

from meshwright.errors import InputError, Problem
from meshwright.model.graph import ModelGraph
from meshwright.model.transforms.shrunk_model import layer_kinds, shrunk_model
from meshwright.plans.forms.conversion import expand, short_of_only_layout
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import Schedule, ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.shrink.features import AXIS_DEGREE
from meshwright.plans.shrink.small_combinations import small_replicas, with_small_numbers
from meshwright.plans.shrink.small_exchanges import PeriodMap, present_entries, steps_of
from meshwright.plans.shrink.small_plans import DEVICE, LEAST_LAYERS, SEQ_LEN, USUAL
from meshwright.plans.synchronisation.plan_axes import loose_axes_of_plan
from meshwright.stack.stack import OWN_STACK

DATA_AXES = ("dp_replicate", "dp_shard")
REPLICAS = lcm(AXIS_DEGREE, AXIS_DEGREE**2)
SEQUENCES_OF_A_REPLICA = 2


@dataclass(frozen=True)
class ComparedPlans:
    """Two small plans of one model, and the steps that both take."""

    plans: tuple[LongPlan, LongPlan]
    model: ModelGraph
    steps: int


def compared_plans(first: LongPlan, second: LongPlan, model: ModelGraph) -> ComparedPlans:
    """Return the small plans. Raises InputError for plans that do not train one model on equal data."""
    _refuse_other_work(first, second)
    shorts = short_of_only_layout(first), short_of_only_layout(second)
    ep = (
        AXIS_DEGREE
        if any(_degrees(short, plan)["ep"] > 1 for short, plan in zip(shorts, (first, second), strict=True))
        else 1
    )
    work = shorts[0].workload
    small = shrunk_model(
        model,
        layers=max(layer_kinds(model.architecture), LEAST_LAYERS),
        tp=1,
        ep=ep,
        etp=1,
        seq_len=SEQ_LEN,
        full_seq_len=work.seq_len,
    )
    periods = PeriodMap.of((*first.synchronise, *second.synchronise))
    both = list(zip(shorts, (first, second), strict=True))
    batch = SEQUENCES_OF_A_REPLICA * lcm(REPLICAS, *(_replicas(short, plan) for short, plan in both))
    made = [_small(short, plan, periods, small, batch) for short, plan in both]
    steps = steps_of([entry for plan in made for entry in plan.synchronise])
    return ComparedPlans((made[0], made[1]), small, steps)


def _refuse_other_work(first: LongPlan, second: LongPlan) -> None:
    works = first.workload, second.workload
    found = [
        Problem(
            f"against.{name}", str(its), f"the plan has {own}: both train one model on equal data", f"{own}"
        )
        for name, own, its in (
            ("model", first.model, second.model),
            *(
                (f"workload.{key}", *(getattr(work, key) for work in works))
                for key in ("seq_len", "documents")
            ),
        )
        if own != its
    ]
    for name, plan in (("plan", first), ("against", second)):
        kept = (
            plan.workload.encoder_tokens,
            plan.workload.images,
            plan.workload.adapter,
            plan.workload.capacity,
        )
        if any(value is not None for value in kept) or len(plan.layouts) > 1:
            rule = "adapters, encoders, capacities and several layouts are not compared"
            found.append(Problem(name, "plan", rule, "verify without --against"))
    if found:
        raise InputError(found)


def _degrees(short: ShortPlan, plan: LongPlan) -> dict[str, int]:
    """Return the small degrees: experts lie on tight axes of data parallelism, inside of an island."""
    degrees = {
        axis: small_replicas(plan.synchronise, axis, getattr(short.layout, axis)) for axis in DATA_AXES
    }
    loose = loose_axes_of_plan(plan)
    room = prod(degree for axis, degree in degrees.items() if axis not in loose)
    return degrees | {"ep": min(short.layout.ep, room, AXIS_DEGREE)}


def _replicas(short: ShortPlan, plan: LongPlan) -> int:
    degrees = _degrees(short, plan)
    return degrees["dp_replicate"] * degrees["dp_shard"]


def _small(
    short: ShortPlan, plan: LongPlan, periods: PeriodMap, model: ModelGraph, global_batch: int
) -> LongPlan:
    degrees, replicas = _degrees(short, plan), _replicas(short, plan)
    sharded = degrees["dp_shard"] > 1
    layers = model.architecture.layers
    entries = present_entries(plan.synchronise, degrees)
    work = short.workload
    small = ShortPlan(
        plan=short.plan,
        model=short.model,
        cluster=f"{DEVICE} x {replicas}",
        workload=WorkloadSpec(
            task=work.task,
            seq_len=SEQ_LEN,
            global_batch=global_batch,
            documents=None if work.documents is None else SEQ_LEN,
            optimizer=work.optimizer,
        ),
        stack=OWN_STACK,
        layout=ShortLayout(
            dp_replicate=degrees["dp_replicate"], dp_shard=degrees["dp_shard"], ep=degrees["ep"]
        ),
        sharding=short.sharding if sharded else "none",
        gather=plan.gather if sharded and short.sharding == "zero3" and plan.gather != "per-unit" else None,
        pipeline=ShortPipeline(schedule=Schedule.of(USUAL), micro_batch=1),
        synchronise=tuple(
            with_small_numbers(
                periods.small(entry, layers, codecs=False),
                getattr(short.layout, entry.axis),
                degrees[entry.axis],
            )
            for entry in entries
        ),
    )
    return expand(small, model.architecture)
