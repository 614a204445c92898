"""Print a check: the problems, the cost, the remedies, the recommended plan's step time."""

from typing import Any

from rich.markup import escape

from meshwright.errors import heading
from meshwright.present.console import console
from meshwright.present.imported_plan import unread_lines
from meshwright.units import format_bytes, format_seconds


def render_check(data: dict[str, Any]) -> None:
    """Print a check in its JSON form."""
    out = console()
    for problem in data["problems"]:
        out.print(
            escape(f"{problem['severity']}: {heading(problem['field'], problem['value'])}: {problem['rule']}")
        )
        if problem["suggestion"]:
            out.print(escape(f"  → {problem['suggestion']}"))
    for line in unread_lines(data["unread"]):
        out.print(escape(line))
    if data["change"] and not data["fits"]:
        change = data["change"]
        out.print(
            escape(
                f"Smallest change: {', '.join(change['all_settings'])} "
                f"({format_seconds(change['step_time_s'])} per step, predicted)"
            )
        )
    if data["step_time_s"] is not None:
        memory = data["memory_bytes"]
        unit = "request" if "pools" in memory else "step"
        out.print(
            f"{format_seconds(data['step_time_s'])} per {unit}, {format_bytes(memory['total'])} of "
            f"{format_bytes(memory['capacity'])} on the fullest device (predicted); "
            + _recommended(data["recommended_step_time_s"], data["fits"])
        )
    elif data["ok"]:
        out.print(escape(f"no step time: {data['origin']['step_time_s'].removeprefix('null: ')}"))
    out.print("ok" if data["ok"] else "not ok")


def _recommended(seconds: float | None, fits: bool) -> str:
    if seconds is None:
        return "no plan to compare it with" if fits else "no plan fits"
    return f"the recommended plan: {format_seconds(seconds)}"
