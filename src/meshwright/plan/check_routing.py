"""Rules on what a workload says of the choice of experts: the model has them, as many and in as many layers."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.plan.case import Case, Rule
from meshwright.workload.workload import Workload

FIELD = "workload.routing"


def routing_of_experts(case: Case) -> Iterator[Problem]:
    """What is said fits the model's experts."""
    workload = case.workload
    if workload is not None:
        yield from routing_problems(workload, case.arch)


def routing_problems(workload: Workload, arch: Architecture) -> Iterator[Problem]:
    """What is wrong with what a workload says of the experts of a model."""
    routing, moe = workload.routing, arch.moe
    if routing is None:
        return
    if moe is None:
        yield Problem(FIELD, str(routing), "the model has no experts", "leave it out")
    elif routing.counts is not None:
        wide, high, routed = len(routing.counts[0]), len(routing.counts), sum(moe.layers)
        if wide != moe.experts:
            rule = f"has counts of {wide} experts, the model has {moe.experts}"
            yield Problem(FIELD, str(routing), rule, f"{moe.experts} numbers in each row")
        if high not in (1, routed):
            rule = f"has {high} rows, the model has {routed} routed layers"
            yield Problem(FIELD, str(routing), rule, f"{routed} rows, or one for all")


ROUTING_RULES: tuple[Rule, ...] = (routing_of_experts,)
