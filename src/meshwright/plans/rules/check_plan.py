"""Check that a plan is legal for its model, cluster and stack. Reports every problem at once.

Each rule is a small function from a case to problems, with its equation filled in and a change that would
mend it. ``RULES`` is the whole list; a new rule is a function and a line there. Warnings do not make a plan
illegal.

``RULES`` are laws of the plan language and of the model. ``STACK_RULES`` say what a stack cannot do; they bind whoever
plans for it, exports to it or runs on it. Who only predicts takes them as remarks: published runs exist that an
exporter could not write.
"""

from collections.abc import Iterable
from dataclasses import replace

from meshwright.cluster.cluster import Cluster
from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.conversion import shorten
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.layers.plan_of_layout import each_layout
from meshwright.plans.rules.activation_offload import OFFLOAD_RULES
from meshwright.plans.rules.adapters import ADAPTER_RULES
from meshwright.plans.rules.batch_and_pipeline import PIPELINE_RULES, layers_and_stages
from meshwright.plans.rules.batch_share import SHARE_RULES, shares_by_stack
from meshwright.plans.rules.context_parallel import CONTEXT_RULES
from meshwright.plans.rules.degrees import DEGREE_RULES, device_product
from meshwright.plans.rules.encoder_models import ENCODER_RULES
from meshwright.plans.rules.expert_order import EXPERT_RULES
from meshwright.plans.rules.forward_only import FORWARD_ONLY_RULES
from meshwright.plans.rules.layouts import LAYOUT_RULES, PLAN_RULES, layouts_by_stack
from meshwright.plans.rules.node_order import NODE_RULES
from meshwright.plans.rules.not_in_this_release import unsupported
from meshwright.plans.rules.offload_of_states import HOST_STATE_RULES
from meshwright.plans.rules.routing_and_capacity import ROUTING_RULES
from meshwright.plans.rules.rule_input import Rule, RuleInput, with_long_form_field
from meshwright.plans.rules.stack_limits import limits_of
from meshwright.plans.rules.stack_limits.plan_values import values_of
from meshwright.plans.rules.stack_support import DEVICE_RULES, STACK_RULES
from meshwright.plans.rules.state_dtypes import TYPE_RULES
from meshwright.plans.rules.state_share import STATE_SHARE_RULES
from meshwright.plans.rules.state_space_layers import STATE_SPACE_RULES
from meshwright.plans.rules.states_in_chunks import CHUNK_RULES
from meshwright.plans.rules.step_validation import STEP_RULES
from meshwright.plans.rules.synchronisation.axis_rules import AXIS_RULES
from meshwright.plans.rules.synchronisation.exchange_support import UNSUPPORTED_RULES
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
    *STATE_SHARE_RULES,
    *STATE_SPACE_RULES,
    *ENCODER_RULES,
    *AXIS_RULES,
)

ONE_LAYOUT_RULES: tuple[Rule, ...] = (device_product, layers_and_stages)
"""Rules that a rule for all layouts of a plan replaces where it has several."""


def check_plan(
    plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack, *, stack_binds: bool = True
) -> list[Problem]:
    """Return the problems of ``problems_by_rule`` without the names of rules."""
    return [problem for _, problem in problems_by_rule(plan, model, cluster, stack, stack_binds=stack_binds)]


def problems_by_rule(
    plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack, *, stack_binds: bool = True
) -> list[tuple[str, Problem]]:
    """Everything that is wrong or doubtful with the rule's name, what is unsupported included; empty for a good plan.

    Fields are named as in the short form where ``plan`` has one. Of a plan with several layouts each is checked as the
    only one, and all of them together. What the stack cannot do is a warning unless ``stack_binds``; limits of
    single frameworks are asked only of plans that are legal otherwise.
    """
    stack = stack.base or stack  # the rules read the plan's element types themselves
    whole, several = RuleInput(plan, model, cluster, stack), len(plan.layouts) > 1
    problems = [("unsupported", problem) for problem in unsupported(plan)]
    problems += _found(
        (*PLAN_RULES, *SHARE_RULES, *UNSUPPORTED_RULES, *(LAYOUT_RULES if several else ())), whole
    )
    cases = [RuleInput(one, model, cluster, stack) for one in each_layout(plan)]
    rules = [rule for rule in RULES if rule not in ONE_LAYOUT_RULES] if several else RULES
    problems += [found for case in cases for found in _named(case, _found(rules, case))]
    legal = not any(problem.severity == "error" for _, problem in problems)
    of_stack = _found((shares_by_stack, *((layouts_by_stack,) if several else ())), whole)
    for case in cases:
        found = _found(STACK_RULES, case)
        if legal and case.workload is not None:
            values = values_of(case.plan, case.arch, case.workload, stack)
            found += [
                (one.find.__name__, problem) for one in limits_of(stack) for problem in one.find(values)
            ]
        of_stack += _named(case, found)
    if not stack_binds:
        of_stack = [(rule, replace(problem, severity="warning")) for rule, problem in of_stack]
    return _distinct([*problems, *of_stack])


def _found(rules: Iterable[Rule], case: RuleInput) -> list[tuple[str, Problem]]:
    return [(rule.__name__, problem) for rule in rules for problem in rule(case)]


def _named(case: RuleInput, found: list[tuple[str, Problem]]) -> list[tuple[str, Problem]]:
    """Return problems with fields of the long form where the plan has no other."""
    if shorten(case.plan) is not None:
        return found
    return [(rule, with_long_form_field(problem, case.layout_name)) for rule, problem in found]


def _distinct(found: list[tuple[str, Problem]]) -> list[tuple[str, Problem]]:
    """Return each problem once: several layouts may have the same."""
    return list(
        {
            (problem.field, str(problem.value), problem.rule): (rule, problem) for rule, problem in found
        }.values()
    )
