"""Answer ``explain``: explain a plan, its difference from another plan, or all values of one choice."""

from collections.abc import Callable
from pathlib import Path

from meshwright.cost.constants_file import Given
from meshwright.cost.serving.level_calibration import given_levels
from meshwright.errors import InputError, Problem
from meshwright.explanation.choice_comparison import ChoiceComparison, compare_values
from meshwright.explanation.explain_plan import explained
from meshwright.explanation.explanation_result import Explanation
from meshwright.explanation.plan_comparison import PlanComparison, compare_plans
from meshwright.explanation.plan_recommendation import is_recommended, recommended
from meshwright.explanation.serving.serving_explanation import ServingExplanation, explain_serving
from meshwright.verbs.load_plan import (
    PlanSource,
    load,
    load_serving,
    plan_name,
    problems_of,
    refuse_serving_options,
    refuse_training_options,
)


def answer_explain(
    plan: PlanSource,
    against: PlanSource | None,
    each: str | None,
    constants: Given | None,
    progress: Callable[[str, float], None] | None,
    calibration: str | Path | None = None,
) -> Explanation | PlanComparison | ChoiceComparison | ServingExplanation:
    """Return the answer. Raises InputError for what can not be loaded, compared or predicted in seconds."""
    if against is not None and each is not None:
        rule = "compares the plan with other values of a choice, and --against with another plan"
        raise InputError(Problem("each", each, rule, "leave one of them out"))
    served = load_serving(plan, constants=constants)
    if served is not None:
        refuse_training_options({"against": against, "each": each})
        return explain_serving(served.file, served.resolved, given_levels(calibration))
    refuse_serving_options({"calibration": calibration})
    own = load(plan, constants=constants)
    if each is not None:
        return compare_values(own, each)
    if against is None:
        return explained(own, progress or (lambda what, part: None))
    with problems_of("against"):
        other = recommended(own) if is_recommended(against) else load(against, constants=constants)
    return compare_plans(own, other, plan_name(against, 1))
