"""Limits that follow from the keys of any stack's file: orders of ranks, times to gather, families that axes cut."""

from collections.abc import Iterator

import numpy as np

from meshwright.errors import Problem
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.plan_values import Flags, PlanValues
from meshwright.plans.rules.state_space_layers import documents_of_state_spaces

DEGREES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


@limit("does not number ranks in this order", "order", *DEGREES)
def rank_order(plan: PlanValues) -> Iterator[Problem]:
    """Orders are equal where they differ in axes of degree 1 only."""
    own = plan.used_order
    orders = (DEFAULT_RANK_ORDER, *plan.stack.rank_orders)
    if own not in (tuple(axis for axis in order if axis in own) for order in orders):
        supported = " or ".join(f"[{', '.join(order)}]" for order in orders)
        rule = f"{plan.stack.id} numbers ranks as {supported}"
        yield Problem("layout.rank_order", list(plan.order), rule, f"[{', '.join(DEFAULT_RANK_ORDER)}]")


def _gathers_otherwise(plan: PlanValues) -> Flags:
    """Only parameters that are sharded are gathered."""
    if plan.sharding != "zero3":
        return False
    known = (plan.gather in gathers for gathers in (plan.stack.pipeline_gathers, plan.stack.gathers))
    return plan.is_sharded & np.logical_not(np.where(plan.pp > 1, *known))


@limit(
    "does not gather parameters so", *DEGREES, "ep", "etp", "sharding", "gather", breaks=_gathers_otherwise
)
def gather(plan: PlanValues) -> Iterator[Problem]:
    """With and without a pipeline a stack gathers at other times."""
    gathers = plan.stack.pipeline_gathers if plan.pp > 1 else plan.stack.gathers
    where = f"with pp = {plan.pp} > 1" if plan.pp > 1 else "without a pipeline"
    rule = f"{plan.stack.id} gathers parameters {' or '.join(gathers)} {where}"
    yield Problem("gather", plan.gather, rule, f"gather: {gathers[0]}" if gathers else "sharding: zero1")


@limit("does not cut this family of models over tp", "tp")
def tensor_families(plan: PlanValues) -> Iterator[Problem]:
    """Refuse tp if the stack has no rule for the model family's matrices."""
    yield from _uncut(plan, "tp", plan.tp, plan.stack.tp_families)


@limit("does not spread this family's experts over ep", "ep")
def expert_families(plan: PlanValues) -> Iterator[Problem]:
    """Refuse ep if the stack has no rule for the model family's experts."""
    yield from _uncut(plan, "ep", plan.ep, plan.stack.ep_families)


def _uncut(plan: PlanValues, axis: str, degree: int, families: tuple[str, ...] | None) -> Iterator[Problem]:
    family = plan.arch.family
    if degree > 1 and families is not None and family not in families:
        rule = f"{plan.stack.id} does not cut {family} over {axis} as a plan does, only {', '.join(families)}"
        yield Problem(f"layout.{axis}", degree, rule, f"{axis}: 1")


@limit("does not train with this recipe of fp8")
def fp8_recipe(plan: PlanValues) -> Iterator[Problem]:
    """Only a recipe that the workload names is asked for; without one it is the stack's own."""
    known, recipe = plan.stack.fp8_recipes, plan.workload.fp8_recipe
    if recipe is not None and recipe not in known:
        rule = f"{plan.stack.id} trains with the recipes {', '.join(known)}"
        yield Problem("workload.fp8_recipe", recipe, rule, f"fp8_recipe: {known[0]}")


@limit("begins no state of Mamba-2 again with a document")
def state_space_documents(plan: PlanValues) -> Iterator[Problem]:
    """Refuse packed documents of a question; a plan of a file is refused by the law that every plan keeps."""
    yield from documents_of_state_spaces(plan.arch, plan.workload)


EVERY_STACK: tuple[StackLimit, ...] = (
    rank_order,
    gather,
    tensor_families,
    expert_families,
    fp8_recipe,
    state_space_documents,
)
