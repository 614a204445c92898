"""Parts of the plan language that this release does not support; a plan that uses one is refused by name.

The types of the long form are complete; this table shrinks as support grows, so that a file never changes its
meaning. ``unsupported`` looks at the plan alone; ``plans/rules/check_plan.py`` adds what model, cluster and stack
forbid.
"""

from collections.abc import Callable, Iterator
from typing import cast

from meshwright.errors import InputError, Problem, nearest
from meshwright.plans.files.expert_pairs_file import routing_of_workload
from meshwright.plans.forms.conversion import ZERO_STATES
from meshwright.plans.forms.host_offload import NVME
from meshwright.plans.forms.long import NOT_YET, SPREAD, Layout, LongPlan, ShardAxis, States
from meshwright.plans.forms.short import CapacitySpec, ShardingName, ShortPlan, WorkloadSpec
from meshwright.plans.layers.plan_of_layout import plan_of_layout
from meshwright.schedules.choice import stage_placement
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS
from meshwright.workload.expert_capacity import Capacity
from meshwright.workload.expert_routing import Routing
from meshwright.workload.fp8_recipe import Fp8Recipe
from meshwright.workload.packed_documents import Documents
from meshwright.workload.workload import (
    SUPPORTED_PRECISIONS,
    SUPPORTED_TASKS,
    Precision,
    Task,
    Workload,
)


def unsupported(plan: LongPlan) -> list[Problem]:
    """Everything in ``plan`` that is refused by name, all at once."""
    return [problem for refusal in REFUSALS for problem in refusal(plan)]


def workload_of(plan: ShortPlan | LongPlan) -> Workload:
    """Return the workload of ``plan``. Raises InputError for wrong numbers or names."""
    spec = plan.workload
    return Workload(
        task=cast(Task, spec.task),
        seq_len=spec.seq_len,
        global_batch=spec.global_batch,
        precision=cast(Precision, spec.precision),
        optimizer=spec.optimizer_in_full,
        documents=None if spec.documents is None else Documents(_lengths(spec.documents)),
        routing=None if spec.routing is None else Routing(routing_of_workload(spec.routing)),
        capacity=_capacity(spec),
        fp8_recipe=cast(Fp8Recipe | None, spec.fp8_recipe),
        adapter=None if spec.adapter is None else spec.adapter.adapter,
        encoder_tokens=spec.encoder_tokens,
        images=None if spec.images is None else spec.images.images,
    )


def _capacity(spec: WorkloadSpec) -> Capacity | None:
    capacity = spec.capacity
    if isinstance(capacity, CapacitySpec):
        return Capacity(**capacity.model_dump())
    return None if capacity is None else Capacity(factor=capacity)


def _lengths(documents: int | tuple[int, ...]) -> tuple[int, ...]:
    return (documents,) if isinstance(documents, int) else documents


def unsupported_workload(plan: ShortPlan | LongPlan) -> Iterator[Problem]:
    """Yield a workload's problems, wrong values and unsupported ones, that do not depend on the model."""
    try:
        workload = workload_of(plan)
    except InputError as error:
        yield from error.problems
        return
    for field, value, supported in (
        ("workload.task", workload.task, SUPPORTED_TASKS),
        ("workload.precision", workload.precision, SUPPORTED_PRECISIONS),
    ):
        if value not in supported:
            yield Problem(field, value, NOT_YET, "one of " + ", ".join(supported))


def zero_name(plan: LongPlan, layout: Layout) -> ShardingName | None:
    """Return the short name of a plan's sharding on a layout; axes of degree 1 shard nothing."""
    split = {axis for axis, degree in layout.grid.model_dump().items() if degree > 1}
    plain: list[ShardingName] = ["none"] if layout.experts is None or layout.experts.edp_shard == 1 else []
    names = (*plain, plan.sharding, *ZERO_STATES)
    return next((n for n in names if _cut(plan.states, split) == _cut(ZERO_STATES[n], split)), None)


def _cut(states: States, split: set[str]) -> list[set[ShardAxis]]:
    return [
        {axis for axis in axes if axis in split}
        for axes in (states.parameter, states.gradient, states.optimizer)
    ]


def _states(plan: LongPlan) -> Iterator[Problem]:
    for name, layout in plan.layouts.items():
        own = plan_of_layout(plan, name)
        if zero_name(own, layout) is None:
            rule = (
                f"on layout {name} this is none of " + ", ".join(ZERO_STATES) + f"; other sharding {NOT_YET}"
            )
            field = "states" if layout.states is None else f"layouts.{name}.states"
            yield Problem(field, own.states.to_data(), rule, _as_text(ZERO_STATES[own.sharding]))


def _as_text(states: States) -> str:
    parts = (
        ("parameter", states.parameter),
        ("gradient", states.gradient),
        ("optimizer", states.optimizer),
    )
    return "{" + ", ".join(f"{key}: [{', '.join(axes)}]" for key, axes in parts) + "}"


def _layers(plan: LongPlan) -> Iterator[Problem]:
    for key, rule in plan.layers.items():
        if rule.vocabulary not in (None, ("tp",), *((SPREAD,) if key in ("embed", "head") else ())):
            field = f"layers.{key}.vocabulary"
            rule_text = f"a vocabulary over other axes than tp, or pp and tp, {NOT_YET}"
            yield Problem(field, rule.vocabulary, rule_text, "[tp], or [pp, tp] for embed and head")
        if key in ("embed", "head") and rule.recompute != "none":
            hint = "recompute: none"
            yield Problem(f"layers.{key}.recompute", rule.recompute, f"recomputing {key} {NOT_YET}", hint)


def _vocabulary(plan: LongPlan) -> Iterator[Problem]:
    """Embedding and head are spread both or not at all, and only what is spread has a form."""
    form, field = plan.pipeline.schedule.vocabulary, "pipeline.schedule.vocabulary"
    ends = {key: plan.layers[key].vocabulary == SPREAD for key in ("embed", "head") if key in plan.layers}
    for key, spread in ends.items():
        if not spread and any(ends.values()):
            rule = f"of embedding and head one alone spread over pp {NOT_YET}"
            yield Problem(f"layers.{key}.vocabulary", plan.layers[key].vocabulary, rule, "[pp, tp] for both")
    if form is not None and form not in FORMS:
        yield Problem(field, form, "unknown form", nearest(form, FORMS))
    elif form is not None and not any(ends.values()):
        rule = "no layer's vocabulary is spread over pp"
        yield Problem(field, form, rule, "layers.embed.vocabulary: [pp, tp], and head's")


def _schedule(plan: LongPlan) -> Iterator[Problem]:
    schedule, field = plan.pipeline.schedule, "pipeline.schedule"
    hint = "one of " + ", ".join(SCHEDULES)
    written = schedule.choice.written
    if schedule.name is not None and (written or schedule.file) is not None:
        yield Problem(field, schedule.name, "has a name, and lists of its own", "one of both")
    elif written is not None:
        yield from written.problems
    elif schedule.file is not None:
        rule = "was not read: the text of a plan alone does not say where it is"
        yield Problem(f"{field}.file", schedule.file, rule, "give the plan's file")
    elif schedule.name is None:
        yield Problem(field, None, "has no name", hint)
    if schedule.sha256 is not None and schedule.file is None:
        yield Problem(f"{field}.sha256", schedule.sha256, "is of a file, and there is none", "take it out")
    if schedule.name is not None and schedule.name not in SCHEDULES:
        yield Problem(field, schedule.name, "unknown schedule", nearest(schedule.name, SCHEDULES))


def _placement(plan: LongPlan) -> Iterator[Problem]:
    pipeline = plan.pipeline
    if not pipeline.usual:
        choice, ranks = pipeline.schedule.choice, min(pipeline.ranks, len(pipeline.placement))
        usual = stage_placement(choice, ranks, len(pipeline.placement) // ranks)
        rule = f"another placement than that of {choice.name} {NOT_YET}"
        yield Problem("pipeline.placement", pipeline.placement, rule, str(list(usual)))


def _extensions(plan: LongPlan) -> Iterator[Problem]:
    for field, value in (
        ("sequence", plan.sequence),
        ("calls", plan.calls),
        ("edges", plan.edges),
    ):
        if value:
            yield Problem(field, str(value), NOT_YET, "take it out")


def _offload(plan: LongPlan) -> Iterator[Problem]:
    """Yield homes of states other than host memory."""
    for key, value in (plan.offload.model_dump() if plan.offload else {}).items():
        if value == NVME:
            yield Problem(
                "offload", f"{key}: {NVME}", f"states on NVMe: {NOT_YET}", f"{key}: all, in host memory"
            )


REFUSALS: tuple[Callable[[LongPlan], Iterator[Problem]], ...] = (
    unsupported_workload,
    _states,
    _layers,
    _vocabulary,
    _schedule,
    _placement,
    _offload,
    _extensions,
)
