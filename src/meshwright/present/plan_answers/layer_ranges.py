"""Print two plans side by side by range of layers."""

from collections.abc import Callable, Mapping
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import plain_table
from meshwright.units import format_bytes, format_seconds


def render_ranges(out: Console, data: Mapping[str, Any] | None, a: str, b: str) -> None:
    """Print both plans' layouts, recomputation and costs of every range; ``a`` and ``b`` are their files."""
    if data is None:
        return
    names = {"a": a, "b": b}
    out.print("\n[bold]Layers of both plans, on one device of each pipeline rank (predicted)[/bold]")
    for key, name in names.items():
        _line(out, f"{name}: {data['plans'][key]}")
    if data["why"] is not None:
        _line(out, f"Not compared by layer: {data['why']}.")
        return
    texts = ("plan", "layout", "recompute")
    table = plain_table("  layers", *texts, "passes", "states", "activations", texts=texts, wrapped=texts)
    for row in data["rows"]:
        for key, name in names.items():
            table.add_row(f"  {row['blocks']}" if key == "a" else "", escape(name), *_cells(row[key]))
    out.print(table)
    between = ", ".join(f"{format_seconds(data['between_s'][key])} in {name}" for key, name in names.items())
    _line(out, f"Changes of layout, and exchanges that nothing hides, take {between}.")


def _line(out: Console, text: str) -> None:
    out.print(escape(fill(text, out.width, initial_indent="  ", subsequent_indent="    ")))


def _cells(side: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the choices and costs of one plan in a range."""
    return (
        escape(f"{side['layout']}: {side['degrees']}"),
        escape(side["recompute"]),
        _shown(side["passes_s"], format_seconds),
        _shown(side["states_bytes"], format_bytes),
        _shown(side["activations_bytes"], format_bytes),
    )


def _shown(value: float | None, formatted: Callable[[float], str]) -> str:
    return "–" if value is None else formatted(value)
