"""Limits of training scripts on Hugging Face's model classes, whoever runs them.

Sources: transformers 5.23.0, ``modeling_utils.py`` and the ``tp_plan`` of its configurations; rank orders of DeepSpeed
0.19.8 (``utils/groups.py``) and Accelerate 1.15.0 (``parallelism_config.py``), which are the same.
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.rules.stack_limits.target_limits import (
    experts_order,
    next_tokens,
    schedule_without_pipeline,
)
from meshwright.workload.optimizer_choice import FIELD


@limit("cuts no Hugging Face model into stages by its configuration", "pp")
def pipeline(plan: PlanValues) -> Iterator[Problem]:
    """Stages are made in code. A stack that has no pp at all says so by itself."""
    if plan.pp > 1 and plan.stack.pp:
        rule = f"no configuration of {plan.stack.id} cuts a Hugging Face model into stages"
        yield Problem("layout.pp", plan.pp, rule, "pp: 1")


@limit("does not keep documents apart in linear attention")
def linear_attention_of_documents(plan: PlanValues) -> Iterator[Problem]:
    """Refuse packed documents: transformers' linear attention carries its state over their borders."""
    documents = plan.workload.documents
    if documents is not None and plan.arch.linear is not None:
        rule = "states of transformers' linear attention do not begin again with a document"
        yield Problem("workload.documents", str(documents), rule, "leave documents out")


@limit("takes optimizers by name, without options")
def optimizer_options(plan: PlanValues) -> Iterator[Problem]:
    """Refuse options of an optimizer: they are the training script's."""
    for key, value in plan.workload.optimizer.written:
        yield Problem(f"{FIELD}.{key}", value, "the training script sets it", "take it out")


SCRIPT_LIMITS: tuple[StackLimit, ...] = (
    pipeline,
    schedule_without_pipeline,
    experts_order,
    next_tokens,
    linear_attention_of_documents,
    optimizer_options,
)
