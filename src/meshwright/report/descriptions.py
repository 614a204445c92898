"""Descriptions as text: nested data as indented lines, long lists shortened."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.plan.files import plan_text
from meshwright.report.console import console
from meshwright.units import format_count

MAX_ITEMS = 40


def render_description(data: dict[str, Any]) -> None:
    """Print a description in its JSON form; a plan is printed as a plan file, the rest as its comments."""
    if data.get("kind") == "plan":
        print(_plan_file(data), end="", flush=True)
    else:
        _print(console(), data, 0)


def _plan_file(data: dict[str, Any]) -> str:
    lines = [f"# {name}: {', '.join(data[name])}" for name in ("given", "defaults") if data.get(name)]
    lines += [f"# devices: {data['devices']}", "# stages:"]
    for stage in data["stages"]:
        last = stage["first_layer"] + stage["layers"] - 1
        ends = "".join(f", {end}" for end in ("embed", "head") if stage[end])
        layers = f"layers {stage['first_layer']}..{last}" if stage["layers"] else "no layers"
        lines.append(f"#   {stage['stage']} on pipeline rank {stage['pipeline_rank']}: {layers}{ends}")
    return plan_text(data["plan"]) + "\n".join(lines) + "\n"


def _print(out: Console, value: dict[str, Any], depth: int) -> None:
    for key, item in value.items():
        name = "  " * depth + f"[bold]{escape(str(key))}[/bold]"
        if isinstance(item, dict):
            out.print(f"{name}:")
            _print(out, item, depth + 1)
        elif isinstance(item, list | tuple) and any(isinstance(entry, dict) for entry in item):
            out.print(f"{name}:")
            for entry in item[:MAX_ITEMS]:
                _print_entry(out, entry, depth + 1)
            if len(item) > MAX_ITEMS:
                out.print("  " * (depth + 1) + f"… {len(item) - MAX_ITEMS} more")
        else:
            out.print(f"{name}: {escape(_shown(item))}", soft_wrap=True)


def _print_entry(out: Console, entry: Any, depth: int) -> None:
    if not isinstance(entry, dict):
        out.print("  " * depth + "- " + escape(_shown(entry)))
        return
    parts = ", ".join(f"{key} {_shown(value)}" for key, value in entry.items() if value not in (None, [], {}))
    out.print("  " * depth + "- " + escape(parts), soft_wrap=True)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,} ({format_count(value)})"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, list | tuple):
        shown = ", ".join(_shown(entry) for entry in value[:MAX_ITEMS])
        return shown + (f", … ({len(value)})" if len(value) > MAX_ITEMS else "")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(entry)}" for key, entry in value.items()) + "}"
    return str(value)
