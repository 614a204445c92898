"""Limits of DeepSpeed 0.19.8 with a Hugging Face model.

* pp: stages are arguments of ``PipelineModule`` in code (``runtime/pipe/module.py``); no key makes them.
* dp_replicate: ZeRO shards over all of data parallelism. MiCS, which sharded over a part of it, is gone
  (``runtime/config.py`` refuses ``mics_shard_size``), and hpZ (``zero_hpz_partition_size``) is none: it keeps a second
  copy of parameters inside a group, states and forward gathers still span all ranks.
* tp with experts: AutoTP wants ep > 1 (``auto_ep_folding.py``).
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.stack_limits.hugging_face import SCRIPT_LIMITS
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.rules.stack_limits.target_limits import precisions
from meshwright.stack.state_types import OPTIMIZER_STATES, half_of


@limit("shards over all of data parallelism", "dp_replicate", "dp_shard", "sharding")
def sharding_over_a_part(plan: PlanValues) -> Iterator[Problem]:
    """Refuse replicas of sharded states: they would need MiCS."""
    if plan.sharding != "none" and plan.dp_replicate > 1:
        rule = f"ZeRO shards over all {plan.dp} ranks of data parallelism: MiCS is no part of 0.19.8"
        hint = f"dp_replicate: 1, dp_shard: {plan.dp}"
        yield Problem("layout.dp_replicate", plan.dp_replicate, rule, hint)


@limit("accumulates in the precision's type without ZeRO", "sharding")
def accumulation_without_zero(plan: PlanValues) -> Iterator[Problem]:
    """Its engine refuses other types of accumulated gradients where nothing is sharded."""
    gradient, half = plan.dtypes.get("gradient"), half_of(plan.workload.precision)
    if plan.sharding == "none" and gradient not in (None, half):
        rule = f"without ZeRO gradients are accumulated in the type of the parameters, {half}"
        yield Problem("dtypes.gradient", gradient, rule, f"gradient: {half}, or sharding: zero1")


@limit("keeps 16-bit states on the device in bf16 only")
def low_states_in_fp16(plan: PlanValues) -> Iterator[Problem]:
    """Refuse 16-bit optimizer states in fp16: DeepSpeed demands its optimizer on the host for them."""
    written = [key for key in OPTIMIZER_STATES if key in plan.dtypes]
    if written and plan.workload.precision == "fp16" and plan.dtypes[written[0]] != "fp32":
        rule = "with precision fp16 DeepSpeed has 16-bit optimizer states only on the host"
        yield Problem(f"dtypes.{written[0]}", plan.dtypes[written[0]], rule, "precision: bf16")


@limit("cuts experts beside tp > 1 with ep > 1 only", "tp", "ep")
def tensor_parallel_experts(plan: PlanValues) -> Iterator[Problem]:
    """AutoTP leaves experts to AutoEP."""
    if plan.arch.moe is not None and plan.tp > 1 and plan.ep == 1:
        rule = f"experts with tp = {plan.tp} > 1 need AutoEP with ep > 1"
        yield Problem("layout.ep", 1, rule, "ep: 2, or tp: 1")


DEEPSPEED_LIMITS: tuple[StackLimit, ...] = (
    *SCRIPT_LIMITS,
    precisions(("fp32", "fp16", "bf16")),
    sharding_over_a_part,
    accumulation_without_zero,
    low_states_in_fp16,
    tensor_parallel_experts,
)
