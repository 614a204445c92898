"""What of a uniform plan Accelerate 1.15.0 cannot say, or would refuse when it starts, each with its rule.

Sources: Accelerate 1.15.0, ``parallelism_config.py`` (sizes), ``big_modeling.py`` (context parallelism drops masks and
refuses models with sliding windows), ``accelerator.py``; ``tp_plan`` of transformers 5.23.0's configurations, which
cut experts over tp. There is no axis for experts (huggingface/accelerate#4200 was closed) and none for a pipeline.
"""

from meshwright.errors import Problem
from meshwright.export.accelerate_plan import MIXED_PRECISION
from meshwright.export.hugging_face_limits import SHARDED_STATES, script_problems
from meshwright.export.packing import linear_packing_problems
from meshwright.export.uniform import UniformPlan
from meshwright.model.architecture import Architecture

TENSOR_FAMILIES = (
    *("deepseek_v2", "dots1", "gemma2", "gemma3_text", "glm4_moe", "granite", "llama", "ministral3"),
    *("mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "smollm3", "starcoder2"),
)
"""Families whose ``tp_plan`` cuts attention, feed-forward and experts as a plan's tp does."""


def plan_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    """Everything about ``plan`` that Accelerate has no word for."""
    return [
        *script_problems(plan, "Accelerate", tuple(MIXED_PRECISION)),
        *_state_problems(plan),
        *_mesh_problems(plan),
        *_tensor_problems(plan, arch),
        *_expert_problems(plan),
        *_sequence_problems(plan, arch),
        *linear_packing_problems(plan, arch),
    ]


def _state_problems(plan: UniformPlan) -> list[Problem]:
    if plan.sharding == "zero1":
        rule = "FSDP does not shard the optimizer alone"
        return [Problem("sharding", plan.sharding, rule, "sharding: zero3")]
    problems, whole = [], plan.shard_axes
    shown = f"[{', '.join(sorted(whole))}]"
    for state in SHARDED_STATES[plan.sharding]:
        axes = plan.sharded_axes(state)
        if axes != whole:
            rule = f"FSDP shards over all of {shown} and nothing else"
            problems.append(Problem(f"states.{state}", sorted(axes), rule, shown))
    if plan.sharding == "zero3" and plan.gather in ("per-unit", "per-step") and plan.micro_batches > 1:
        rule = "FSDP gathers parameters per layer or per micro-batch"
        problems.append(Problem("gather", plan.gather, rule, "gather: per-layer"))
    return problems


def _mesh_problems(plan: UniformPlan) -> list[Problem]:
    """Replicas beside tp or cp need FSDP inside them, and cp needs it always."""
    if plan.sharding == "none" and plan.cp > 1:
        rule = f"Accelerate shards states over cp = {plan.cp} > 1"
        return [Problem("sharding", "none", rule, "sharding: zero3")]
    if plan.sharding == "none" and plan.tp > 1 and plan.dp > 1:
        rule = f"copies of a tensor-parallel model (dp = {plan.dp}, tp = {plan.tp}) need dp_shard > 1"
        return [Problem("sharding", "none", rule, "sharding: zero3")]
    if plan.sharding != "none" and plan.dp_replicate > 1 and plan.dp_shard == 1:
        rule = f"dp_replicate = {plan.dp_replicate} beside cp = {plan.cp} needs dp_shard > 1"
        hint = f"dp_replicate: 1, dp_shard: {plan.dp_replicate}"
        return [Problem("layout.dp_replicate", plan.dp_replicate, rule, hint)]
    return []


def _tensor_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    if plan.tp == 1:
        return []
    if arch.family not in TENSOR_FAMILIES:
        rule = f"transformers has no tp_plan that cuts {arch.family} as a plan does"
        return [Problem("layout.tp", plan.tp, rule, "tp: 1")]
    if plan.long.workload.precision == "fp8":
        rule = f"torchao's fp8 layers are not cut over tp = {plan.tp}"
        return [Problem("workload.precision", "fp8", rule, "precision: bf16")]
    return []


def _expert_problems(plan: UniformPlan) -> list[Problem]:
    experts, problems = plan.experts, []
    if experts is None:
        return []
    if experts.ep > 1:
        rule = "Accelerate has no axis for experts"
        problems.append(Problem("layout.ep", experts.ep, rule, "ep: 1"))
    elif experts.etp != plan.tp:
        rule = f"transformers cuts experts over tp = {plan.tp}"
        problems.append(Problem("layout.etp", experts.etp, rule, f"etp: {plan.tp}"))
    if plan.sharding != "none" and experts.ep == 1 and experts.edp_replicate != plan.dp_replicate:
        field = f"layouts.{plan.layout_name}.experts.edp_replicate"
        rule = f"edp_replicate = {experts.edp_replicate} must be dp_replicate = {plan.dp_replicate}"
        problems.append(Problem(field, experts.edp_replicate, rule, f"{plan.dp_replicate}"))
    return problems


def _sequence_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    """Context parallelism runs torch's ring of plain causal attention, which halves each rank's share."""
    if plan.cp == 1:
        return []
    problems, cut, length = [], 2 * plan.cp, plan.long.workload.seq_len
    if length % cut:
        rule = f"seq_len mod 2·cp = {length} mod {cut} = {length % cut}, must be 0"
        problems.append(Problem("workload.seq_len", length, rule, f"a multiple of {cut}"))
    masked = any(window is not None for window in arch.windows) or arch.positions == "alibi"
    if masked or arch.attention_sinks or arch.linear is not None:
        rule = f"Accelerate's context parallelism knows plain causal attention, not that of {arch.name}"
        problems.append(Problem("layout.cp", plan.cp, rule, "cp: 1"))
    return problems
