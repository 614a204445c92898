"""Limits of Megatron-Bridge 0.6.2 beyond Megatron's own.

Source: Megatron-Bridge 0.6.2, ``training/config.py`` (``_validate_and_apply_megatron_fsdp_configs``).
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.megatron import MEGATRON_LIMITS, PP_LAST, has_pp_before_dp
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.rules.stack_limits.shared_limits import DEGREES


@limit("does not run Megatron-FSDP with pp before dp", *DEGREES, "sharding", "order", "ep", "etp")
def sharded_parameters_order(plan: PlanValues) -> Iterator[Problem]:
    """Gradients and parameters are sharded by Megatron-FSDP."""
    if plan.sharded in ("zero2", "zero3") and has_pp_before_dp(plan):
        rule = "Megatron-FSDP does not run with pp before dp"
        yield Problem("layout.rank_order", list(plan.order), rule, PP_LAST)


BRIDGE_LIMITS: tuple[StackLimit, ...] = (*MEGATRON_LIMITS, sharded_parameters_order)
