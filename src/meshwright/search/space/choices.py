"""Searched choices: what the variants of a base plan choose (``plans/choices``), and the checks that they must pass."""

from dataclasses import dataclass, field

from meshwright.plans.choices import searched_choices
from meshwright.plans.choices.plan_choice import Bools, ChoiceRuleInput
from meshwright.plans.rules.stack_limits.limits import StackLimit
from meshwright.search.space.constraints import SearchConstraints
from meshwright.search.space.stack_limits_of_rows import StackLimitsOfRows

SEARCHED_CHOICES = searched_choices()
DEFERRED_CHOICE = next(name for name, choice in SEARCHED_CHOICES.items() if choice.later)
"""The column of what is chosen later."""


@dataclass(frozen=True)
class VariantChecks(ChoiceRuleInput):
    """Base plans and candidate values, with the constraints of the question and the limits of its stack.

    ``allowed`` caches which base plans a limit allows, by the codes of the choices that it reads.
    """

    constraints: SearchConstraints
    limits: StackLimitsOfRows
    allowed: dict[tuple[StackLimit, tuple[tuple[str, int], ...]], Bools] = field(default_factory=dict)
