"""Compare two serving plans: keys in which they differ, and predictions."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from meshwright.cost.constants_file import Given
from meshwright.cost.serving.level_calibration import given_levels
from meshwright.errors import InputError, Problem
from meshwright.present.plan_answers.comparison import compare_serving_reports
from meshwright.verbs.load_plan import PlanSource, load_serving, refuse_serving_options
from meshwright.verbs.predict.request_report import predicted_serving


def compare_serving_plans(
    paths: Sequence[PlanSource],
    terms: tuple[str | int | None, Iterable[str], str],
    constants: Given | None,
    calibration: str | Path | None = None,
) -> dict[str, Any] | None:
    """Return the comparison of two serving plans; None if neither serves. Raises InputError where one of them does."""
    plans = [load_serving(path, constants=constants) for path in paths]
    if not any(plans):
        refuse_serving_options({"calibration": calibration})
        return None
    sides, levels = [], given_levels(calibration)
    for plan, name in zip(plans, paths, strict=True):
        if plan is None:
            rule = "is no serving plan, and the other one is"
            raise InputError(Problem("plan", str(name), rule, "two plans that serve, or two that train"))
        sides.append((plan.file.to_data(), predicted_serving(plan.resolved, *terms, levels=levels)))
    return compare_serving_reports(sides[0], sides[1])
