"""What of a uniform plan Megatron-Bridge 0.6.2 cannot say, or would refuse when it starts, beyond Megatron's own rules.

Sources: Megatron-Bridge 0.6.2, ``training/config.py`` (``_validate_and_apply_megatron_fsdp_configs``),
``models/gemma/gemma2_provider.py``.
"""

from meshwright.errors import Problem
from meshwright.export.bridge_recipes import BridgeModel
from meshwright.export.megatron_limits import plan_problems as megatron_problems
from meshwright.export.megatron_plan import ORDERS, STRATEGIES, exchange_refusals, known_order
from meshwright.export.result import Refusal
from meshwright.export.uniform import UniformPlan
from meshwright.model.architecture import Architecture
from meshwright.stack.stack import Stack


def plan_problems(plan: UniformPlan, arch: Architecture, known: BridgeModel | None) -> list[Problem]:
    """What of a plan Bridge cannot say or would refuse; ``known`` is the model's row, if it has one."""
    problems = megatron_problems(plan, arch)
    order = known_order(plan)
    if plan.sharding in STRATEGIES and order and ORDERS[order]:
        rule = "Megatron-FSDP does not run with pp before dp"
        problems.append(Problem("layout.rank_order", [*plan.order], rule, "pp last in rank_order"))
    if known and plan.cp > 1 and not known.context_parallel:
        rule = f"the attention of {known.model} in Bridge is not cut over cp: {plan.cp} must be 1"
        problems.append(Problem("layout.cp", plan.cp, rule, "cp: 1"))
    return problems


def plan_refusals(plan: UniformPlan, arch: Architecture, stack: Stack) -> list[Refusal]:
    """What Bridge means in its own way without a change to the plan."""
    refusals = exchange_refusals(plan, stack)
    if plan.long.workload.task == "sft":
        why = "the recipe reads pre-training data; recipes for fine-tuning bring data and tokenizer of their own"
        refusals.append(Refusal("workload.task", "sft", why))
    if not stack.attention.startswith("flash"):
        why = (
            "a file of overrides cannot choose the attention kernel: the recipe does (fused where it can be)"
        )
        refusals.append(Refusal("stack.attention", stack.attention, why))
    if arch.moe and stack.deduplicates_exchange:
        why = (
            "written as alltoall; DeepEP and HybridEP (model.moe_token_dispatcher_type flex) want variables "
            "and libraries of the site"
        )
        refusals.append(Refusal("stack.deduplicates_exchange", "true", why))
    return refusals
