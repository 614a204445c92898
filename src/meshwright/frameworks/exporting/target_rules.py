"""Refuse a plan that breaks any rule of the target's stack, whatever stack the plan was made for."""

from meshwright.cluster.cluster import Cluster
from meshwright.errors import Problem, UnsupportedError
from meshwright.frameworks.exporting.adapter_options import adapter_problems
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.not_in_this_release import workload_of
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
    if problems:
        raise UnsupportedError(problems)


def _unequal_nodes(cluster: Cluster) -> list[Problem]:
    """torchrun starts the same number of processes on every node."""
    count, node = cluster.devices, cluster.pool.node.devices
    if count <= node or count % node == 0:
        return []
    rule = f"{count} devices do not fill nodes of {node}, torchrun needs equal nodes"
    return [Problem("cluster", count, rule, f"{count // node * node} devices")]
