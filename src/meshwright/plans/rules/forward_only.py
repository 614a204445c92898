"""Rules on forward-only optimizers: refused options, and the replicas that split perturbations need."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.schedules.forward_only_lists import SCHEDULES
from meshwright.stack.state_types import FORWARD_ONLY_GATHER, FORWARD_ONLY_SHARDINGS
from meshwright.workload.optimizer_choice import FIELD, Optimizer

NO_GRADIENT_TYPES = ("gradient", "reduce")


def _optimizer(case: RuleInput) -> Optimizer | None:
    """Return the optimizer of a legal workload if it has no backward passes."""
    workload = case.workload
    return workload.optimizer if workload is not None and workload.optimizer.forward_only else None


def forward_passes_only(case: RuleInput) -> Iterator[Problem]:
    """Refuse schedules whose forward passes alone are none, and what only backward passes have."""
    optimizer, choice, plan = _optimizer(case), case.plan.choice, case.plan
    if optimizer is None:
        return
    name = optimizer.name
    if choice.name not in SCHEDULES:
        rule = f"{name} has forward passes only, and runs {' and '.join(SCHEDULES)}"
        yield Problem("pipeline.schedule", choice.name, rule, "schedule: 1f1b")
    elif choice.in_flight is not None:
        rule = f"{name} keeps no passes in flight: there are no backward passes"
        yield Problem("pipeline.schedule.in_flight", choice.in_flight, rule, "take it out")
    if choice.vocabulary is not None:
        rule = f"passes of a vocabulary that is spread have no form without backward passes, which {name} has not"
        yield Problem("pipeline.schedule.vocabulary", choice.vocabulary, rule, "take it out")
    if choice.step_validation == "after":
        rule = f"{name} knows both losses before it steps, and has no norm to validate"
        yield Problem("pipeline.schedule.step_validation", "after", rule, "step_validation: before")
    again = [rule.recompute for rule in plan.layers.values() if rule.recompute != "none"]
    if again:
        rule = f"{name} has no backward pass that could run anything again"
        yield Problem("recompute", str(again[0]), rule, "recompute: none")
    if plan.offload is not None and plan.offload.rule.share:
        rule = f"{name} keeps no activations: there are no backward passes"
        yield Problem("offload.activations", plan.offload.activations, rule, "take it out")


def parameters_alone(case: RuleInput) -> Iterator[Problem]:
    """Refuse shardings, host states and element types of what there is not: gradients and optimizer states."""
    optimizer, plan = _optimizer(case), case.plan
    if optimizer is None:
        return
    name = optimizer.name
    if plan.sharding not in FORWARD_ONLY_SHARDINGS:
        rule = f"{name} has no gradients and no optimizer states that {plan.sharding} could cut"
        yield Problem("sharding", plan.sharding, rule, "sharding: none, or zero3, which cuts parameters")
    if plan.sharding == "zero3" and plan.gather != FORWARD_ONLY_GATHER:
        rule = f"{name} gathers parameters for each forward pass, layer by layer"
        yield Problem("gather", plan.gather, rule, f"gather: {FORWARD_ONLY_GATHER}")
    if plan.host_shares.optimizer:
        rule = f"{name} has no optimizer states"
        yield Problem(
            "offload.optimizer", getattr(plan.offload, "optimizer", None), rule, "offload.parameters"
        )
    for key in NO_GRADIENT_TYPES:
        if key in plan.written_types:
            yield Problem(f"dtypes.{key}", plan.written_types[key], f"{name} has no gradients", "take it out")
    if case.workload is not None and case.workload.task == "lora":
        rule = f"{name} trains all parameters: adapters are not supported with it yet"
        yield Problem(FIELD, name, rule, "task: sft, or optimizer: adamw")


def split_perturbations(case: RuleInput) -> Iterator[Problem]:
    """Require two equal halves of replicas where each computes one of the losses."""
    optimizer, replicas = _optimizer(case), case.grid.dp_replicate
    if optimizer is None or not optimizer.splits_perturbations or replicas % 2 == 0:
        return
    rule = f"two halves of the replicas compute one loss each: dp_replicate % 2 = {replicas} % 2 must be 0"
    hint = f"layout.dp_replicate: {replicas + 1}, or perturbations: both"
    yield Problem("workload.optimizer.perturbations", "split", rule, hint)


def split_experts(case: RuleInput) -> Iterator[Problem]:
    """Require all ranks that share experts' tokens or parameters in one half of the replicas."""
    optimizer, experts = _optimizer(case), case.layout.experts
    if optimizer is None or not optimizer.splits_perturbations or case.arch.moe is None or experts is None:
        return
    if case.grid.dp_replicate % 2:
        return
    if experts.edp_replicate % 2:
        rule = (
            "two halves of the replicas have unlike parameters, and experts of both meet: edp_replicate % 2 = "
            f"{experts.edp_replicate} % 2 must be 0"
        )
        yield Problem("layout.ep", experts.ep, rule, "a smaller ep or etp, or perturbations: both")
    for field, order, last in (
        ("layout.rank_order", case.layout.order, "dp_replicate"),
        ("layout.expert_order", experts.order, "edp_replicate"),
    ):
        inner = [axis for axis in order if axis != "pp"]
        if inner[-1] != last:
            rule = f"two halves of the replicas have unlike parameters: {last} varies slower than all axes but pp"
            yield Problem(field, ", ".join(order), rule, f"{last} behind {inner[-1]}")


FORWARD_ONLY_RULES: tuple[Rule, ...] = (
    forward_passes_only,
    parameters_alone,
    split_perturbations,
    split_experts,
)
