"""Limits of single frameworks on plans, each stated once: ``STACK_LIMITS`` by the name of the stack.

Facts that every stack has a value for (has it cp, which schedules) are keys of its file, and their rules are in
``plans/rules/stack_support.py``. Here is what takes more than a list of values to say. The search (over arrays),
``check``, ``export`` and ``run`` all read both.
"""

from collections.abc import Mapping

from meshwright.errors import Problem
from meshwright.plans.rules.stack_limits.accelerate import ACCELERATE_LIMITS
from meshwright.plans.rules.stack_limits.deepspeed import DEEPSPEED_LIMITS
from meshwright.plans.rules.stack_limits.limits import StackLimit, broken
from meshwright.plans.rules.stack_limits.megatron import MEGATRON_LIMITS
from meshwright.plans.rules.stack_limits.megatron_bridge import BRIDGE_LIMITS
from meshwright.plans.rules.stack_limits.meshwright import OWN_LIMITS
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.rules.stack_limits.shared_limits import EVERY_STACK
from meshwright.plans.rules.stack_limits.stack_models import MODEL_LIMITS
from meshwright.plans.rules.stack_limits.torchtitan import TORCHTITAN_LIMITS
from meshwright.plans.setting import Setting
from meshwright.stack.stack import OWN_STACK, Stack

STACK_LIMITS: Mapping[str, tuple[StackLimit, ...]] = {
    "accelerate": ACCELERATE_LIMITS,
    "deepspeed": DEEPSPEED_LIMITS,
    "megatron-core": MEGATRON_LIMITS,
    "megatron-bridge": BRIDGE_LIMITS,
    "torchtitan": TORCHTITAN_LIMITS,
    OWN_STACK: OWN_LIMITS,
}


def broken_by_every_plan(setting: Setting) -> list[Problem]:
    """Return the errors that the stack finds in a question, whatever its plans are."""
    plan = PlanValues(setting.model.architecture, setting.workload, setting.stack)
    found = broken((limit for limit in limits_of(setting.stack) if not limit.reads), plan)
    return [problem for problem in found if problem.severity == "error"]


def limits_of(stack: Stack) -> tuple[StackLimit, ...]:
    """Return the limits of a stack: the general ones and its own."""
    return (*MODEL_LIMITS, *EVERY_STACK, *STACK_LIMITS.get(stack.name, ()))
