"""Limits that several frameworks share, for lack of an option in their launchers and training scripts."""

from collections.abc import Collection, Iterator

from meshwright.errors import Problem
from meshwright.model.operators.multi_token_prediction import ASKED
from meshwright.plans.forms.long import DEFAULT_EXPERT_ORDER
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.plan_values import Flags, PlanValues
from meshwright.plans.rules.stack_limits.shared_limits import DEGREES


@limit("runs one micro-batch after the other without a pipeline (pp = 1)", "pp", "schedule", "virtual_stages")
def schedule_without_pipeline(plan: PlanValues) -> Iterator[Problem]:
    """Schedules are for pipelines."""
    if plan.pp == 1 and (plan.schedule.name != "1f1b" or plan.virtual_stages > 1):
        rule = f"without a pipeline {plan.stack.id} runs one micro-batch after the other"
        yield Problem("pipeline.schedule", plan.schedule.name, rule, "schedule: 1f1b")


@limit("has no layers that predict further tokens")
def next_tokens(plan: PlanValues) -> Iterator[Problem]:
    """Only Megatron has words for them."""
    if plan.arch.next_token_layers:
        rule = f"{plan.stack.id} has no layers that predict further tokens"
        yield Problem("model", plan.arch.name, rule, f"{ASKED}: false in its file")


@limit("has another order of the experts' ranks", *DEGREES, "ep", "etp", "sharding", "order")
def experts_order(plan: PlanValues) -> Iterator[Problem]:
    """Require the usual order of the experts' mesh; Megatron derives its own (``megatron.py``)."""
    usual = tuple(axis for axis in DEFAULT_EXPERT_ORDER if axis in plan.experts_order)
    if plan.experts_order != usual:
        rule = f"{plan.stack.id} numbers the experts' ranks as {', '.join(DEFAULT_EXPERT_ORDER)}"
        yield Problem("layout.rank_order", list(plan.experts_order), rule, "pp last in rank_order")


def copies_experts_otherwise(plan: PlanValues) -> Flags:
    """Return true if sharded states of experts have not as many copies as those of the rest."""
    if plan.arch.moe is None:
        return False
    return plan.is_sharded & (plan.expert_replicas != plan.dp_replicate)


@limit(
    "copies experts as often as the rest of the model",
    *DEGREES,
    "ep",
    "etp",
    "sharding",
    breaks=copies_experts_otherwise,
)
def expert_replicas(plan: PlanValues) -> Iterator[Problem]:
    """Sharded states of experts have as many copies as those of the rest."""
    rule = (
        f"edp_replicate = {plan.expert_replicas} must be dp_replicate = {plan.dp_replicate}: "
        f"ep = {plan.ep} goes beyond dp_shard·cp·tp = {plan.dp_shard * plan.cp * plan.tp}"
    )
    yield Problem("layout.ep", plan.ep, rule, "ep inside of dp_shard·cp·tp")


def precisions(supported: Collection[str]) -> StackLimit:
    """Make the limit of a framework that only knows these precisions."""

    @limit("does not train in this precision")
    def precision(plan: PlanValues) -> Iterator[Problem]:
        if plan.workload.precision not in supported:
            rule = f"{plan.stack.id} knows {', '.join(supported)}"
            yield Problem("workload.precision", plan.workload.precision, rule, "precision: bf16")

    return precision
