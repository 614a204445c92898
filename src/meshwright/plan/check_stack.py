"""Rules on what the stack can do, what the devices know, and what the network makes slow."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from meshwright.errors import Problem, nearest
from meshwright.model.architecture import Architecture
from meshwright.plan.case import Case, Rule
from meshwright.plan.recomputing import layer_recomputes, told
from meshwright.plan.runnable import OWN_STACK, hindrances
from meshwright.plan.short import Recompute, default_gather
from meshwright.schedule import SCHEDULES
from meshwright.schedule.choice import known_kind


def stack_axes(case: Case) -> Iterator[Problem]:
    """The stack knows every kind of parallelism that the plan uses."""
    mesh, grid, stack = case.layout.experts, case.grid, case.stack
    for axis, degree, able in (
        ("tp", grid.tp, stack.tp),
        ("pp", case.pp, stack.pp),
        ("cp", grid.cp, stack.cp),
        ("ep", mesh.ep if mesh else 1, stack.ep),
        ("etp", mesh.etp if mesh else 1, stack.etp),
    ):
        if degree > 1 and not able:
            yield Problem(f"layout.{axis}", degree, f"{stack.id} has no {axis}", f"{axis}: 1")


def stack_choices(case: Case) -> Iterator[Problem]:
    """The stack knows the schedule, the sharding and how it gathers."""
    stack, sharding, choice = case.stack, case.plan.sharding, case.plan.pipeline.schedule.choice
    name = choice.name
    if choice.written and not stack.written_lists:
        rule = f"{stack.id} runs schedules by name, not lists of one's own"
        yield Problem(_lists_field(case), name, rule, f"stack: {OWN_STACK}, or a schedule by name")
    if choice.written is None and name in SCHEDULES and case.pp > 1 and name not in stack.schedules:
        rule = f"{stack.id} does not run this schedule"
        yield Problem("pipeline.schedule", name, rule, nearest(name, stack.schedules))
    if known_kind(choice) and case.pp > 1:
        for knob in sorted(choice.heeded - set(stack.schedule_knobs)):
            rule = f"{stack.id} has no choice of it"
            yield Problem(f"pipeline.schedule.{knob}", choice.turned[knob], rule, "take it out")
    if sharding not in stack.shardings:
        hint = nearest(sharding, stack.shardings)
        yield Problem("sharding", sharding, f"{stack.id} does not shard this way", hint)
    elif case.pp > 1 and sharding not in stack.pipeline_shardings:
        rule = f"{stack.id} does not run {sharding} with pp = {case.pp} > 1"
        yield Problem("sharding", sharding, rule, "one of " + ", ".join(stack.pipeline_shardings))
    if case.plan.gather == "per-unit" and "per-unit" not in stack.pipeline_gathers:
        rule = f"{stack.id} does not gather once for a unit of micro-batches"
        hint = f"gather: {default_gather(sharding, case.pp)}, or stack: {OWN_STACK}"
        yield Problem("gather", case.plan.gather, rule, hint)


def _lists_field(case: Case) -> str:
    return f"pipeline.schedule.{'file' if case.plan.pipeline.schedule.file else 'lists'}"


def recomputation(case: Case) -> Iterator[Problem]:
    """The stack can recompute it, and the model has it."""
    rules = {key: rule.recompute for key, rule in case.plan.layers.items() if key not in ("embed", "head")}
    if len(set(rules.values())) > 1 and not case.stack.recomputes_by_layer:
        said = told(layer_recomputes(case.plan, case.arch.layers))
        rule = f"{case.stack.id} recomputes all layers alike"
        hint = f"recompute: full for all of them, or stack: {OWN_STACK}"
        yield Problem("layers", said, rule, hint)
    for key, recompute in rules.items():
        yield from _recomputation(
            "recompute" if len(rules) == 1 else f"layers.{key}.recompute", recompute, case
        )


def _recomputation(field: str, recompute: Recompute, case: Case) -> Iterator[Problem]:
    """What is wrong with one choice of what to recompute."""
    names = (recompute,) if isinstance(recompute, str) else recompute
    for name in names:
        if name not in case.stack.recomputes:
            hint = nearest(name, case.stack.recomputes)
            yield Problem(field, name, f"{case.stack.id} does not recompute this", hint)
    have = recomputable(case.arch)
    for name in names if not isinstance(recompute, str) else ():
        if name not in have:
            rule = f"{case.model.name} has no operator of this kind"
            yield Problem(field, name, rule, "one of " + ", ".join(have))


def recomputable(arch: Architecture) -> tuple[str, ...]:
    """The operators of this model that a recomputation list may name."""
    names = ["core_attn", "layernorm"]
    if arch.intermediate:
        names.append("mlp")
    if arch.moe is not None:
        names += ["moe", "moe_act"] + (["shared_experts"] if arch.moe.shared_intermediate else [])
    if arch.latent is not None:
        names.append("mla_up_proj")
    return tuple(names)


def precision(case: Case) -> Iterator[Problem]:
    """The devices have a peak at this precision."""
    workload = case.workload
    if workload is None:
        return
    for pool in case.cluster.pools:
        peaks = pool.device.peak_flops
        if workload.peak_precision not in peaks:
            rule = (
                f"{pool.device.id} has no {workload.peak_precision} matrix units (it has {', '.join(peaks)})"
            )
            yield Problem("workload.precision", workload.precision, rule, "bf16, or newer devices")


def one_pool(case: Case) -> Iterator[Problem]:
    """All devices are equal; several kinds would need several groups."""
    if len(case.cluster.pools) != 1:
        rule = f"a cluster of {len(case.cluster.pools)} pools needs several groups, not supported yet"
        yield Problem(
            "cluster", case.cluster.name, rule, "a cluster of equal devices, such as h100-sxm-80gb x 64"
        )


def sequence_parallelism(case: Case) -> Iterator[Problem]:
    """Sequence parallelism is a companion of tp, where the stack has it."""
    if not case.layout.sequence_parallel:
        return
    if case.grid.tp > 1 and not case.stack.sequence_parallel:
        rule = f"{case.stack.id} has no sequence parallelism"
        yield Problem("layout.sequence_parallel", True, rule, "sequence_parallel: false")
    if case.grid.tp == 1:
        rule = "has no effect: it cuts sequences over tp, and tp = 1"
        yield Problem("layout.sequence_parallel", True, rule, "sequence_parallel: false", "warning")


def tensor_span(case: Case) -> Iterator[Problem]:
    """tp ranks inside one scale-up domain; beyond it every layer waits for the slower network."""
    order, tp = case.layout.order, case.grid.tp
    if tp == 1 or "tp" not in order or not case.cluster.pools:
        return
    span = prod(case.degrees[axis] for axis in order[: order.index("tp") + 1])
    domain = min(pool.node.scaleup_domain for pool in case.cluster.pools)
    if span > domain:
        rule = f"a tp group spans {span} ranks, a scale-up domain has {domain} devices"
        hint = f"tp: {domain} or less" if tp > domain else "tp first in rank_order"
        yield Problem("layout.tp", tp, rule, hint, "warning")


def own_runtime(case: Case) -> Iterator[Problem]:
    """What Meshwright's own runtime does not run yet; such a plan is priced all the same."""
    if case.stack.name == OWN_STACK:
        for problem in hindrances(case.plan, case.model):
            yield replace(problem, severity="warning")


STACK_RULES: tuple[Rule, ...] = (
    one_pool,
    stack_axes,
    stack_choices,
    recomputation,
    precision,
    sequence_parallelism,
    tensor_span,
    own_runtime,
)
