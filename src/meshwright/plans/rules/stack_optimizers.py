"""Rule on the optimizers that a stack has; their options have rules in ``workload/optimizer_choice.py``."""

from collections.abc import Iterator

from meshwright.errors import Problem, nearest
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.workload.optimizer_choice import FIELD


def optimizer_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse an optimizer that the stack does not have, and Muon under shardings where it does not run."""
    workload, stack = case.workload, case.stack
    if workload is None:
        return
    optimizer = workload.optimizer
    for name in dict.fromkeys((optimizer.name, optimizer.others.name)):
        if name not in stack.optimizers:
            rule = f"{stack.id} has {', '.join(stack.optimizers)}"
            yield Problem(FIELD, name, rule, nearest(name, stack.optimizers))
    sharding = case.plan.sharding
    if (
        optimizer.kind.of_matrices
        and optimizer.name in stack.optimizers
        and sharding not in stack.muon_shardings
        and sharding in stack.shardings
    ):
        rule = f"{stack.id} runs {optimizer.name} with sharding {' or '.join(stack.muon_shardings)} only"
        yield Problem("sharding", sharding, rule, f"sharding: {stack.muon_shardings[-1]}")
