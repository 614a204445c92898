"""Rules on the features of the stack, the precisions of the devices, and slow links."""

from collections.abc import Iterator
from math import prod

from meshwright.errors import Problem, nearest
from meshwright.model.architecture import Architecture
from meshwright.model.transforms.norm_kernels import fused_sets
from meshwright.plans.forms.short import Recompute
from meshwright.plans.rules.activation_offload import offloading_by_stack
from meshwright.plans.rules.adapters import adapters_by_stack
from meshwright.plans.rules.context_parallel import stack_contexts
from meshwright.plans.rules.expert_order import expert_order_by_stack
from meshwright.plans.rules.offload_of_states import states_by_stack
from meshwright.plans.rules.recompute_by_stack import recomputation_by_layer
from meshwright.plans.rules.routing_and_capacity import capacity_by_stack
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.plans.rules.stack_optimizers import optimizer_by_stack
from meshwright.plans.rules.state_dtypes import state_types_by_stack
from meshwright.plans.rules.state_share import state_shares_by_stack
from meshwright.plans.rules.states_in_chunks import chunks_by_stack
from meshwright.plans.rules.step_validation import validation_by_stack
from meshwright.plans.rules.synchronisation.exchange_support import exchanges_by_stack
from meshwright.plans.rules.vocabulary_parallel import vocabulary_parallel_stack
from meshwright.schedules.choice import known_kind
from meshwright.schedules.generators import SCHEDULES
from meshwright.stack.stack import OWN_STACK


def stack_axes(case: RuleInput) -> Iterator[Problem]:
    """Refuse kinds of parallelism that the stack does not have."""
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


def stack_choices(case: RuleInput) -> Iterator[Problem]:
    """Refuse schedules, knobs, shardings and gathers that the stack does not have."""
    stack, sharding, choice = case.stack, case.plan.sharding, case.plan.pipeline.schedule.choice
    name = choice.name
    if choice.written and not stack.written_lists:
        rule = f"{stack.id} runs schedules by name, not lists of one's own"
        yield Problem(_lists_field(case), name, rule, f"stack: {OWN_STACK}, or a schedule by name")
    if choice.written is None and name in SCHEDULES and case.pp > 1 and name not in stack.schedules:
        rule = f"{stack.id} does not run this schedule"
        yield Problem("pipeline.schedule", name, rule, nearest(name, stack.schedules))
    if known_kind(choice):
        for knob in sorted(choice.heeded - set(stack.schedule_knobs)):
            rule = f"{stack.id} has no choice of it"
            yield Problem(f"pipeline.schedule.{knob}", choice.given_knobs[knob], rule, "take it out")
    if sharding not in stack.shardings:
        hint = nearest(sharding, stack.shardings)
        yield Problem("sharding", sharding, f"{stack.id} does not shard this way", hint)
    elif case.pp > 1 and sharding not in stack.pipeline_shardings:
        rule = f"{stack.id} does not run {sharding} with pp = {case.pp} > 1"
        yield Problem("sharding", sharding, rule, "one of " + ", ".join(stack.pipeline_shardings))


def _lists_field(case: RuleInput) -> str:
    return f"pipeline.schedule.{'file' if case.plan.pipeline.schedule.file else 'lists'}"


def recomputation(case: RuleInput) -> Iterator[Problem]:
    """Refuse recomputation that the stack does not have."""
    for field, recompute in _recomputes(case):
        for name in (recompute,) if isinstance(recompute, str) else recompute:
            if name not in case.stack.recomputes:
                hint = nearest(name, case.stack.recomputes)
                yield Problem(field, name, f"{case.stack.id} does not recompute this", hint)


def recomputed_operators(case: RuleInput) -> Iterator[Problem]:
    """Refuse recomputation of operators that the model does not have."""
    have = recomputable(case.arch)
    for field, recompute in _recomputes(case):
        for name in recompute if not isinstance(recompute, str) else ():
            if name not in have:
                rule = f"{case.model.name} has no operator of this kind"
                yield Problem(field, name, rule, "one of " + ", ".join(f"[{operator}]" for operator in have))


def recomputation_has_effect(case: RuleInput) -> Iterator[Problem]:
    """Recomputation of operators that the stack computes inside of others does nothing."""
    fused = fused_sets(case.model, case.stack.norm_products)
    for field, recompute in _recomputes(case):
        for name in recompute if not isinstance(recompute, str) else ():
            if name in fused:
                rule = (
                    f"{name} has no effect: {case.stack.id} computes every norm of {case.model.name} inside of the "
                    "product behind it, whose kernel keeps the norm's result"
                )
                hint = f"take {name} out" if len(recompute) > 1 else "recompute: none"
                yield Problem(field, recompute, rule, hint, "warning")


def _recomputes(case: RuleInput) -> Iterator[tuple[str, Recompute]]:
    """Each choice of what to recompute, with its field."""
    rules = {key: rule.recompute for key, rule in case.plan.layers.items() if key not in ("embed", "head")}
    for key, recompute in rules.items():
        yield "recompute" if len(rules) == 1 else f"layers.{key}.recompute", recompute


def recomputable(arch: Architecture) -> tuple[str, ...]:
    """Return the operators of this model that a recomputation list may name."""
    names = ["core_attn", "layernorm"]
    if arch.intermediate:
        names.append("mlp")
    if arch.moe is not None:
        names += ["moe", "moe_act"] + (["shared_experts"] if arch.moe.shared_intermediate else [])
    if arch.latent is not None:
        names.append("mla_up_proj")
    return tuple(names)


def precision(case: RuleInput) -> Iterator[Problem]:
    """Require devices with matrix units of the workload's precision."""
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


def one_pool(case: RuleInput) -> Iterator[Problem]:
    """All devices are equal; several kinds would need several groups."""
    if len(case.cluster.pools) != 1:
        rule = f"a cluster of {len(case.cluster.pools)} pools needs several groups, not supported yet"
        yield Problem(
            "cluster", case.cluster.name, rule, "a cluster of equal devices, such as h100-sxm-80gb x 64"
        )


def sequence_parallelism(case: RuleInput) -> Iterator[Problem]:
    """Refuse sequence parallelism if the stack does not have it."""
    if case.layout.sequence_parallel and case.grid.tp > 1 and not case.stack.sequence_parallel:
        rule = f"{case.stack.id} has no sequence parallelism"
        yield Problem("layout.sequence_parallel", True, rule, "sequence_parallel: false")


def sequence_parallelism_has_effect(case: RuleInput) -> Iterator[Problem]:
    """Sequence parallelism without tp does nothing."""
    if case.layout.sequence_parallel and case.grid.tp == 1:
        rule = "has no effect: it cuts sequences over tp, and tp = 1"
        yield Problem("layout.sequence_parallel", True, rule, "sequence_parallel: false", "warning")


def tp_within_scaleup_domain(case: RuleInput) -> Iterator[Problem]:
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


DEVICE_RULES: tuple[Rule, ...] = (
    one_pool,
    precision,
    recomputed_operators,
    recomputation_has_effect,
    sequence_parallelism_has_effect,
    tp_within_scaleup_domain,
)
"""What holds for any stack."""
STACK_RULES: tuple[Rule, ...] = (
    stack_axes,
    stack_choices,
    recomputation,
    recomputation_by_layer,
    sequence_parallelism,
    stack_contexts,
    validation_by_stack,
    vocabulary_parallel_stack,
    offloading_by_stack,
    states_by_stack,
    chunks_by_stack,
    optimizer_by_stack,
    state_types_by_stack,
    expert_order_by_stack,
    capacity_by_stack,
    adapters_by_stack,
    state_shares_by_stack,
    exchanges_by_stack,
)
"""What the keys of a stack's file say that it cannot do."""
