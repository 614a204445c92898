"""Is this plan legal for this model, on this cluster, with this stack? Every problem at once.

Each rule is a small function from a case to problems, with its equation filled in and a change that would
mend it. ``RULES`` is the whole list; a new rule is a function and a line there. Warnings do not make a plan
illegal.
"""

from meshwright.cluster.graph import Cluster
from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.plan.case import Case, Rule, in_long_words
from meshwright.plan.check_context import CONTEXT_RULES
from meshwright.plan.check_degrees import DEGREE_RULES
from meshwright.plan.check_experts import EXPERT_RULES
from meshwright.plan.check_nodes import NODE_RULES
from meshwright.plan.check_offload import OFFLOAD_RULES
from meshwright.plan.check_pipeline import PIPELINE_RULES
from meshwright.plan.check_routing import ROUTING_RULES
from meshwright.plan.check_stack import STACK_RULES
from meshwright.plan.check_step import STEP_RULES
from meshwright.plan.check_vocabulary import VOCABULARY_RULES
from meshwright.plan.expand import shorten
from meshwright.plan.long import LongPlan
from meshwright.plan.supported import unsupported
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
    *STACK_RULES,
    *ROUTING_RULES,
)


def check_plan(plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> list[Problem]:
    """Everything that is wrong or doubtful, what is unsupported included; empty for a good plan.

    Fields are named as in the short form where ``plan`` has one. The rules read one layout: of a plan with
    several only what is unsupported comes back.
    """
    problems = unsupported(plan)
    if len(plan.layouts) != 1:
        return problems
    case = Case(plan, model, cluster, stack)
    problems += [problem for rule in RULES for problem in rule(case)]
    if shorten(plan) is not None:
        return problems
    return [in_long_words(problem, case.layout_name) for problem in problems]
