"""The table of a report that compares a plan with others: step, cost, days and the risk that a plan does not fit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from meshwright.errors import InputError
from meshwright.explanation.plan_comparison import PlanComparison, compare_plans
from meshwright.plans.resolve import Resolved
from meshwright.result import Report


def plan_row(name: str, resolved: Resolved, report: Report) -> dict[str, Any]:
    """Return the row of a plan; ``name`` is its file."""
    return {
        "name": name,
        "plan": (resolved.short or resolved.long).to_data(),
        "step_time_s": report.step_time_s,
        "step_time_low_s": report.step_time_low_s,
        "step_time_high_s": report.step_time_high_s,
        "usd_per_step": report.usd_per_step,
        "usd": (report.training or {}).get("usd"),
        "days": (report.training or {}).get("days"),
        "memory_bytes": report.memory_bytes["total"],
        "risk_of_not_fitting": None if report.fits_probability is None else 1 - report.fits_probability,
        "why": None,
        "changes": {},
        "lines": [],
    }


def compared(
    own: Resolved, others: Sequence[tuple[str, Resolved, Report]]
) -> Iterator[tuple[dict[str, Any], PlanComparison]]:
    """Yield the row of each other plan and how it compares. Raise InputError naming the plan that does not compare."""
    for at, (name, resolved, report) in enumerate(others):
        try:
            found = compare_plans(own, resolved, name)
        except InputError as error:
            raise InputError([replace(one, field=f"{one.field}.{at}") for one in error.problems]) from None
        changes = {key: list(pair) for key, pair in found.difference.changes.items()}
        row = plan_row(name, resolved, report)
        yield row | {"why": " ".join(found.summary), "changes": changes, "lines": found.lines}, found
