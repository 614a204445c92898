"""Compare two plan files line by line, or a plan with a trace of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshwright.cost.constants_file import Given
from meshwright.errors import InputError, Problem
from meshwright.explanation.range_comparison import compare_ranges
from meshwright.present.plan_answers.comparison import compare_reports
from meshwright.verbs.load_plan import load
from meshwright.verbs.predict.request_report import predicted_any
from meshwright.verbs.predict.serving_comparison import compare_serving_plans
from meshwright.verbs.predict.trace_comparison import compare_with_trace, is_trace


def compared_files(
    a: str | Path,
    b: str | Path,
    terms: tuple[str | int | None, Iterable[str], str],
    constants: Given | None,
    calibration: str | Path | None,
) -> dict[str, Any]:
    """Return the comparison; ``terms`` are tokens, assumptions and the term of prices. Raises InputError."""
    if is_trace(a):
        rule = "is a trace by its name, and the plan that it is a trace of comes first"
        raise InputError(Problem("a", str(a), rule, f"meshwright compare {b} {a}"))
    if is_trace(b):
        if terms[0] is not None:
            rule = "is of a whole training, and a trace is of single steps"
            raise InputError(Problem("tokens", terms[0], rule, "leave it out, or compare two plan files"))
        return compare_with_trace(load(a, constants=constants), b)
    served = compare_serving_plans((a, b), terms, constants, calibration)
    if served is not None:
        return served
    plans = [load(path, constants=constants) for path in (a, b)]
    reports = (predicted_any(path, (), constants, terms, calibration) for path in (a, b))
    first, second = zip(plans, reports, strict=True)
    return compare_reports(first, second, compare_ranges(*plans))
