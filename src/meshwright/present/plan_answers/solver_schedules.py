"""Print the solver's results for the best plans of a search."""

from typing import Any

from rich.markup import escape

from meshwright.units import format_seconds


def render_solved(out: Any, data: dict[str, Any]) -> None:
    """Print the results in their public JSON form."""
    out.print(
        f"\n[bold]Lists searched[/bold] for {data['search_time_s']:.1f} s of {data['seconds_allowed']:g} s, "
        f"seed {data['seed']}"
        + (", interrupted" if data["interrupted"] else "")
        + ("" if data["plans"] else ": no plan with a pipeline fits")
    )
    for plan in data["plans"]:
        for line in solved_lines(plan):
            out.print(escape(line))
    if any("pipeline_s" in plan for plan in data["plans"]):
        out.print(f"  [dim]Steps: {escape(data['origin']['step_time_s'])}.[/dim]")


def solved_lines(plan: dict[str, Any]) -> list[str]:
    """Return the solver's result for one plan, on one line or two."""
    name = f"  {_name(plan)}"
    if plan["left_because"]:
        return [f"{name}: {plan['left_because']}"]
    before, after = plan["step_time_before_s"], plan["step_time_s"]
    if after < before:
        step = f"step {format_seconds(before)} → {format_seconds(after)}, {1 - after / before:.2%} shorter"
    else:
        step = f"step {format_seconds(before)}, nothing shorter was found"
    bound = (
        "no lists are shorter"
        if plan["proven"]
        else f"{plan['gap']:.2%} above what none are below ({plan['bound_reason']})"
    )
    pipeline = f"    pipeline {format_seconds(plan['pipeline_s'])} by {plan['found_by']}, {bound}"
    return [f"{name}: {step}", f"{pipeline}; {plan['search_time_s']:.1f} s, {plan['search_steps']:,} steps"]


def _name(plan: dict[str, Any]) -> str:
    degrees = [f"{name}{degree}" for name, degree in plan["layout"].items() if _above_one(degree)]
    pipeline = plan["pipeline"]
    chunks = f" ×{pipeline['virtual_stages']}" if pipeline["virtual_stages"] > 1 else ""
    words = [*degrees, f"mb{pipeline['micro_batch']}", f"{plan['schedule']}{chunks}"]
    return " ".join([*words, *([] if plan["recompute"] == "none" else [f"recompute {plan['recompute']}"])])


def _above_one(degree: Any) -> bool:
    return isinstance(degree, int) and not isinstance(degree, bool) and degree > 1
