"""Limits of megatron-core 0.19.2.

Sources: megatron-core 0.19.2, ``training/arguments.py``, ``core/parallel_state.py``,
``core/transformer/moe/moe_layer.py``, ``core/transformer/multi_token_prediction.py``; Megatron-LM, issue 2357.
"""

from collections.abc import Iterator

import numpy as np

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.model.operators.multi_token_prediction import COUNT
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.plan_values import Flags, PlanValues
from meshwright.plans.rules.stack_limits.shared_limits import DEGREES
from meshwright.plans.rules.stack_limits.target_limits import (
    copies_experts_otherwise,
    schedule_without_pipeline,
)
from meshwright.workload.optimizer_choice import FIELD

PP_LAST = "pp last in rank_order"
EXPERTS = (*DEGREES, "ep", "etp", "sharding")
PP_BEFORE_DP = ("tp", "cp", "pp", "dp_shard", "dp_replicate")
EXPERTS_PP_BEFORE_DP = ("etp", "ep", "pp", "edp_shard", "edp_replicate")
EXPERTS_PP_LAST = ("etp", "ep", "edp_shard", "edp_replicate", "pp")


def has_pp_before_dp(plan: PlanValues) -> Flags:
    """Return true if pipeline ranks vary faster than data-parallel ones (``tp-cp-ep-pp-dp``)."""
    slower = [getattr(plan, axis) > 1 for axis in plan.order[plan.order.index("pp") + 1 :]]
    return (plan.pp > 1) & np.any(slower, axis=0) & np.logical_not(plan.reordered(PP_BEFORE_DP))


def _numbers_experts_otherwise(plan: PlanValues) -> Flags:
    if plan.arch.moe is None:
        return False
    before = has_pp_before_dp(plan)
    first, last = (plan.experts_reordered(order) for order in (EXPERTS_PP_BEFORE_DP, EXPERTS_PP_LAST))
    return np.where(before, first | _unlike_attention(plan), last)


def _unlike_attention(plan: PlanValues) -> Flags:
    return plan.ep * plan.etp != plan.tp * plan.cp


@limit(
    "numbers the experts' ranks as those of attention", *EXPERTS, "order", breaks=_numbers_experts_otherwise
)
def experts_order(plan: PlanValues) -> Iterator[Problem]:
    """Of two orders both meshes have the same one."""
    order = EXPERTS_PP_BEFORE_DP if has_pp_before_dp(plan) else EXPERTS_PP_LAST
    rule = f"Megatron then numbers the experts' ranks as {', '.join(order)}"
    if not plan.experts_reordered(order):
        rule = f"with pp before dp, ep·etp = {plan.ep}·{plan.etp} must equal tp·cp = {plan.tp * plan.cp}"
    yield Problem("layout.rank_order", list(plan.order), rule, PP_LAST)


@limit(
    "keeps one copy of the experts' states in each instance of the optimizer",
    *EXPERTS,
    breaks=copies_experts_otherwise,
)
def expert_replicas(plan: PlanValues) -> Iterator[Problem]:
    """Require dp_replicate copies of experts: the distributed optimizer has that many instances."""
    rule = (
        f"Megatron keeps one copy of the experts' states in each of {plan.dp_replicate} instances: "
        f"edp_replicate = {plan.expert_replicas} must be {plan.dp_replicate}"
    )
    yield Problem("layout.ep", plan.ep, rule, "ep within dp_shard·cp·tp")


@limit("does not cut experts with biases", "etp")
def biased_experts(plan: PlanValues) -> Iterator[Problem]:
    """Refuse etp > 1 for experts with biases: grouped GEMMs add no bias to a part of an expert."""
    if plan.etp > 1 and plan.arch.moe is not None and plan.arch.moe.expert_bias:
        rule = f"experts with biases are not cut: etp = {plan.etp} must be 1"
        yield Problem("layout.etp", plan.etp, rule, "etp: 1")


@limit("has no Nesterov momentum of SGD, and AdamW or Lion beside Muon")
def optimizer_options(plan: PlanValues) -> Iterator[Problem]:
    """Refuse options that Megatron's optimizers do not have."""
    optimizer = plan.workload.optimizer
    if optimizer.name == "sgd" and optimizer.options["nesterov"]:
        yield Problem(f"{FIELD}.nesterov", True, "Megatron's SGD has no such momentum", "nesterov: false")
    if optimizer.others.name == "sgd" and optimizer.kind.of_matrices:
        yield Problem(f"{FIELD}.others", "sgd", "Megatron has adamw or lion beside muon", "others: adamw")


@limit("does not keep documents of pre-training apart")
def documents(plan: PlanValues) -> Iterator[Problem]:
    """Only data for fine-tuning pack with the lengths of documents."""
    work = plan.workload
    if work.documents is not None and work.task != "sft":
        rule = "Transformer Engine's causal kernels do not read the mask that --reset-attention-mask makes"
        yield Problem("workload.documents", str(work.documents), rule, "leave documents out, or task: sft")


@limit("has layers for further tokens in the head's stage only", "pp", "virtual_stages", "schedule")
def next_token_stage(plan: PlanValues) -> Iterator[Problem]:
    """Their losses are computed with the head."""
    count, own = plan.arch.next_token_layers, plan.last_stage.count
    if own < count:
        rule = (
            f"Megatron computes the losses of further tokens with the head: the {count} such layers must be in "
            f"its stage, which has {own} of them"
        )
        yield Problem("pipeline.stages", own, rule, f"{count} layers or more in the last stage")


@limit("makes layers for further tokens otherwise")
def next_token_layers(plan: PlanValues) -> Iterator[Problem]:
    """They are made like the main model's last layer, with the windows of its first ones."""
    arch = plan.arch
    if not arch.next_token_layers:
        return
    if arch.positions not in ("rope", "none"):
        rule = "--mtp-num-layers needs rotary positions, or none"
        yield Problem("model.positions", arch.positions, rule, f"{COUNT}: 0 in the model's file")
    yield from _unlike_the_last(arch)


def _unlike_the_last(arch: Architecture) -> Iterator[Problem]:
    main = arch.main_layers
    routed = arch.moe.layers[main - 1 :] if arch.moe else ()
    if len(set(routed)) > 1:
        rule = f"Megatron makes them like the main model's last layer, which has {_experts(routed[0])}"
        hint = f"layer {main - 1} with {_experts(routed[-1])}"
        yield Problem("model.moe", _experts(routed[-1]), rule, hint)
    windowed = [window is not None for window in arch.windows]
    further, taken = windowed[main:], windowed[: arch.next_token_layers]
    if None in arch.windows[:main] and further != taken:
        rule = "Megatron takes the windows of the model's first layers for those that predict further tokens"
        hint = "the same kinds of attention in the first and in the last layers"
        yield Problem("model.windows", _kinds(further), rule, hint)


def _experts(routed: bool) -> str:
    return "experts" if routed else "no experts"


def _kinds(windowed: list[bool]) -> str:
    return ", ".join("windowed" if flag else "full" for flag in windowed)


MEGATRON_LIMITS: tuple[StackLimit, ...] = (
    schedule_without_pipeline,
    experts_order,
    expert_replicas,
    biased_experts,
    documents,
    optimizer_options,
    next_token_stage,
    next_token_layers,
)
