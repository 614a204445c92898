"""Limits of Accelerate 1.15.0 with a Hugging Face model.

Sources: Accelerate 1.15.0, ``parallelism_config.py`` (sizes), ``big_modeling.py`` (context parallelism drops masks and
refuses models with sliding windows), ``accelerator.py``; ``tp_plan`` of transformers 5.23.0's configurations, which
cut experts over tp.
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.stack_limits.hugging_face import SCRIPT_LIMITS
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.rules.stack_limits.target_limits import expert_replicas, precisions

MESH = ("dp_replicate", "dp_shard", "cp", "tp", "sharding")
SHARDED = "sharding: zero3"


@limit("shards states wherever there is cp, or copies beside tp", *MESH)
def mesh_without_sharding(plan: PlanValues) -> Iterator[Problem]:
    """Refuse cp, or replicas next to tp, without FSDP: Accelerate makes no such mesh."""
    if plan.sharding == "none" and plan.cp > 1:
        yield Problem("sharding", "none", f"Accelerate shards states over cp = {plan.cp} > 1", SHARDED)
    elif plan.sharding == "none" and plan.tp > 1 and plan.dp > 1:
        rule = f"copies of a tensor-parallel model (dp = {plan.dp}, tp = {plan.tp}) need dp_shard > 1"
        yield Problem("sharding", "none", rule, SHARDED)
    elif plan.sharding != "none" and plan.dp_replicate > 1 and plan.dp_shard == 1:
        rule = f"dp_replicate = {plan.dp_replicate} beside cp = {plan.cp} needs dp_shard > 1"
        hint = f"dp_replicate: 1, dp_shard: {plan.dp_replicate}"
        yield Problem("layout.dp_replicate", plan.dp_replicate, rule, hint)


@limit("does not cut fp8 layers over tp", "tp")
def tensor_parallel_fp8(plan: PlanValues) -> Iterator[Problem]:
    """torchao's layers are no DTensors."""
    if plan.tp > 1 and plan.workload.precision == "fp8":
        rule = f"torchao's fp8 layers are not cut over tp = {plan.tp}"
        yield Problem("workload.precision", "fp8", rule, "precision: bf16")


@limit("cuts experts over tp", "tp", "etp")
def expert_tensor_parallel(plan: PlanValues) -> Iterator[Problem]:
    """Require etp = tp: transformers' ``tp_plan`` cuts experts as it cuts the rest."""
    if plan.arch.moe is not None and plan.etp != plan.tp:
        rule = f"transformers cuts experts over tp = {plan.tp}"
        yield Problem("layout.etp", plan.etp, rule, f"etp: {plan.tp}")


@limit("has context parallelism for plain causal attention only", "cp")
def context_parallel_attention(plan: PlanValues) -> Iterator[Problem]:
    """Context parallelism runs torch's ring of plain causal attention."""
    arch = plan.arch
    masked = any(window is not None for window in arch.windows) or arch.positions == "alibi"
    if plan.cp > 1 and (masked or arch.attention_sinks or arch.linear is not None):
        rule = f"Accelerate's context parallelism knows plain causal attention, not that of {arch.name}"
        yield Problem("layout.cp", plan.cp, rule, "cp: 1")


ACCELERATE_LIMITS: tuple[StackLimit, ...] = (
    *SCRIPT_LIMITS,
    precisions(("fp32", "fp16", "bf16", "fp8")),
    mesh_without_sharding,
    tensor_parallel_fp8,
    expert_tensor_parallel,
    expert_replicas,
    context_parallel_attention,
)
