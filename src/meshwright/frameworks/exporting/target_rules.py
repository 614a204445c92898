"""Refuse a plan that breaks any rule of the target's stack, whatever stack the plan was made for."""

from collections.abc import Sequence

from meshwright.cluster.cluster import Cluster
from meshwright.errors import Problem, UnsupportedError
from meshwright.frameworks.exporting.adapter_options import adapter_problems
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.rules.synchronisation.exchange_support import FIELD as SYNCHRONISE
from meshwright.plans.rules.synchronisation.exchange_support import format_count
from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack


def stack_of_target(target: str, stack: Stack) -> Stack:
    """Return the plan's stack where it is the target's (a file may describe it), else ours."""
    return stack if stack.name == target else load_stack(target)


def refuse_unsayable(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> None:
    """Raise UnsupportedError with all that the target, whose ``stack`` it is, cannot say of a plan."""
    found = check_plan(plan, model, cluster, stack)
    problems = [problem for problem in found if problem.severity == "error"]
    if len(cluster.pools) == 1:
        problems += _unequal_nodes(cluster)
    problems += adapter_problems(workload_of(plan), model, stack.name)
    problems += _entries(plan, problems)
    if problems:
        raise UnsupportedError(problems)


def _unequal_nodes(cluster: Cluster) -> list[Problem]:
    """torchrun starts the same number of processes on every node."""
    count, node = cluster.devices, cluster.pool.node.devices
    if count <= node or count % node == 0:
        return []
    rule = f"{count} devices do not fill nodes of {node}, torchrun needs equal nodes"
    return [Problem("cluster", count, rule, f"{count // node * node} devices")]


def _entries(plan: LongPlan, problems: Sequence[Problem]) -> list[Problem]:
    """Refuse entries of ``synchronise`` as a whole, unless they are refused already."""
    if not plan.synchronise or any(problem.field == SYNCHRONISE for problem in problems):
        return []
    rule = "no target's files say what replicas exchange, how often and in which encoding"
    return [
        Problem(
            SYNCHRONISE,
            format_count(plan.synchronise),
            rule,
            f"take {SYNCHRONISE} out, or run it with meshwright run",
        )
    ]
