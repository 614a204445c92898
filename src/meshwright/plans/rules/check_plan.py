"""Check that a plan is legal for its model, cluster and stack. Reports every problem at once.

Each rule is a small function from a case to problems, with its equation filled in and a change that would
mend it. ``RULES`` is the whole list; a new rule is a function and a line there. Warnings do not make a plan
illegal.

``RULES`` are laws of the plan language and of the model. ``STACK_RULES`` say what a stack cannot do; they bind whoever
plans for it, exports to it or runs on it. Who only predicts takes them as remarks: published runs exist that an
exporter could not write.
"""

from dataclasses import replace

from meshwright.cluster.cluster import Cluster
from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.conversion import shorten
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.rules.activation_offload import OFFLOAD_RULES
from meshwright.plans.rules.adapters import ADAPTER_RULES
from meshwright.plans.rules.batch_and_pipeline import PIPELINE_RULES
from meshwright.plans.rules.context_parallel import CONTEXT_RULES
from meshwright.plans.rules.degrees import DEGREE_RULES
from meshwright.plans.rules.expert_order import EXPERT_RULES
from meshwright.plans.rules.forward_only import FORWARD_ONLY_RULES
from meshwright.plans.rules.node_order import NODE_RULES
from meshwright.plans.rules.not_in_this_release import unsupported
from meshwright.plans.rules.offload_of_states import HOST_STATE_RULES
from meshwright.plans.rules.routing_and_capacity import ROUTING_RULES
from meshwright.plans.rules.rule_input import Rule, RuleInput, with_long_form_field
from meshwright.plans.rules.stack_limits import limits_of
from meshwright.plans.rules.stack_limits.plan_values import values_of
from meshwright.plans.rules.stack_support import DEVICE_RULES, STACK_RULES
from meshwright.plans.rules.state_dtypes import TYPE_RULES
from meshwright.plans.rules.states_in_chunks import CHUNK_RULES
from meshwright.plans.rules.step_validation import STEP_RULES
from meshwright.plans.rules.vocabulary_parallel import VOCABULARY_RULES
from meshwright.stack.stack import Stack

RULES: tuple[Rule, ...] = (
    *DEGREE_RULES,
    *CONTEXT_RULES,
    *NODE_RULES,
    *EXPERT_RULES,
    *PIPELINE_RULES,
    *VOCABULARY_RULES,
    *STEP_RULES,
    *OFFLOAD_RULES,
    *HOST_STATE_RULES,
    *CHUNK_RULES,
    *TYPE_RULES,
    *DEVICE_RULES,
    *ROUTING_RULES,
    *FORWARD_ONLY_RULES,
    *ADAPTER_RULES,
)


def check_plan(
    plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack, *, stack_binds: bool = True
) -> list[Problem]:
    """Return the problems of ``problems_by_rule`` without the names of rules."""
    return [problem for _, problem in problems_by_rule(plan, model, cluster, stack, stack_binds=stack_binds)]


def problems_by_rule(
    plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack, *, stack_binds: bool = True
) -> list[tuple[str, Problem]]:
    """Everything that is wrong or doubtful with the rule's name, what is unsupported included; empty for a good plan.

    Fields are named as in the short form where ``plan`` has one. The rules read one layout: of a plan with
    several only what is unsupported comes back. What the stack cannot do is a warning unless ``stack_binds``; limits of
    single frameworks are asked only of plans that are legal otherwise.
    """
    problems = [("unsupported", problem) for problem in unsupported(plan)]
    if len(plan.layouts) != 1:
        return problems
    stack = stack.base or stack  # the rules read the plan's element types themselves
    case = RuleInput(plan, model, cluster, stack)
    problems += [(rule.__name__, problem) for rule in RULES for problem in rule(case)]
    legal = not any(problem.severity == "error" for _, problem in problems)
    of_stack = [(rule.__name__, problem) for rule in STACK_RULES for problem in rule(case)]
    if legal and case.workload is not None:
        values = values_of(plan, case.arch, case.workload, stack)
        of_stack += [(one.find.__name__, problem) for one in limits_of(stack) for problem in one.find(values)]
    if not stack_binds:
        of_stack = [(rule, replace(problem, severity="warning")) for rule, problem in of_stack]
    problems += of_stack
    if shorten(plan) is not None:
        return problems
    return [(rule, with_long_form_field(problem, case.layout_name)) for rule, problem in problems]
