"""Rules on a workload's expert routing and capacity: they fit the model's experts, and the stack supports them."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture, Experts
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.stack import Stack
from meshwright.workload.expert_capacity import Capacity
from meshwright.workload.expert_routing import Routing
from meshwright.workload.workload import Workload

FIELD = "workload.routing"
CAPACITY = "workload.capacity"


def routing_of_experts(case: RuleInput) -> Iterator[Problem]:
    """Require routing and capacity to fit the model's experts."""
    workload = case.workload
    if workload is not None:
        yield from routing_problems(workload, case.arch)


def capacity_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse a capacity that the stack does not have."""
    workload = case.workload
    if workload is not None and case.arch.moe is not None and workload.capacity is not None:
        yield from capacity_problems(workload.capacity, case.stack)


def padded_scopes(case: RuleInput) -> Iterator[Problem]:
    """Refuse padding if ranks of cp or tp share a scope: none of them knows how many places are free."""
    workload, grid = case.workload, case.grid
    if workload is not None and shares_padding(workload) and grid.cp * grid.tp > 1:
        scope = workload.capacity and workload.capacity.scope
        rule = f"cp·tp = {grid.cp}·{grid.tp} ranks share a {scope}, and none knows what is left to fill"
        yield Problem(f"{CAPACITY}.pad", True, rule, "pad: false, or scope: rank")


def shares_padding(workload: Workload) -> bool:
    """Return true if ranks of cp and tp would have to fill places together."""
    capacity = workload.capacity
    return capacity is not None and capacity.pad and capacity.scope != "rank"


def routing_problems(workload: Workload, arch: Architecture) -> Iterator[Problem]:
    """Yield conflicts of a workload's routing and capacity with a model's experts."""
    routing, capacity, moe = workload.routing, workload.capacity, arch.moe
    if routing is not None and moe is None:
        yield Problem(FIELD, str(routing), "the model has no experts", "leave it out")
    if capacity is not None and moe is None:
        yield Problem(CAPACITY, str(capacity), "the model has no experts", "leave it out")
    if moe is not None and routing is not None and routing.counts is not None:
        yield from _counts(routing, moe)
    if moe is not None and capacity is not None:
        yield from _factor(capacity, moe)


def _counts(routing: Routing, moe: Experts) -> Iterator[Problem]:
    assert routing.counts is not None
    wide, high, routed = len(routing.counts[0]), len(routing.counts), sum(moe.layers)
    if wide != moe.experts:
        rule = f"has counts of {wide} experts, the model has {moe.experts}"
        yield Problem(FIELD, str(routing), rule, f"{moe.experts} numbers in each row")
    if high not in (1, routed):
        rule = f"has {high} rows, the model has {routed} routed layers"
        yield Problem(FIELD, str(routing), rule, f"{routed} rows, or one for all")


def _factor(capacity: Capacity, moe: Experts) -> Iterator[Problem]:
    most = moe.experts / moe.experts_per_token
    if capacity.pad and capacity.factor > most:
        of = f"experts / experts of a token = {moe.experts} / {moe.experts_per_token} = {most:g}"
        rule = f"above {of} a padded expert has more places than there are tokens"
        yield Problem(f"{CAPACITY}.factor", capacity.factor, rule, f"{most:g} or less, or pad: false")


def capacity_problems(capacity: Capacity, stack: Stack) -> Iterator[Problem]:
    """Yield the parts of a capacity that a stack does not have."""
    if not stack.capacity_scopes:
        rule = f"{stack.id} gives experts all tokens that chose them"
        yield Problem(CAPACITY, str(capacity), rule, "leave it out, or another stack")
    elif capacity.scope not in stack.capacity_scopes:
        rule = f"{stack.id} does not count the tokens of a {capacity.scope}"
        yield Problem(f"{CAPACITY}.scope", capacity.scope, rule, "one of " + ", ".join(stack.capacity_scopes))
    if capacity.pad and stack.deduplicates_exchange:
        rule = "an exchange that sends a token once to a node does not pad"
        yield Problem(f"{CAPACITY}.pad", True, rule, "pad: false")


ROUTING_RULES: tuple[Rule, ...] = (routing_of_experts, padded_scopes)
