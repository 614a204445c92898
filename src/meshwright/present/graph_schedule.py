"""Print a schedule of operators with branches: the step, its bound, the best chain, and each rank's stage."""

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from meshwright.present.console import console, percent, plain_table, printable
from meshwright.units import format_bytes, format_seconds

MOST_NAMES = 6
"""Largest number of a stage's operators that are named."""


def render_branches(data: dict[str, Any], written: Sequence[str]) -> None:
    """Print an answer in its public JSON form."""
    out = console()
    for line in _head(data):
        out.print(escape(line))
    table = plain_table("rank", "busy", "peak memory", "messages", "stage", "needs", "operators")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for rank in range(data["ranks"]):
        figures = [
            str(rank),
            percent(data["busy"][rank]),
            format_bytes(data["peak_bytes"][rank]),
            f"{data['messages'][rank]:,}",
        ]
        for stage in (stage for stage in data["stages"] if stage["rank"] == rank):
            needs = " ".join(map(str, stage["needs"]))
            table.add_row(*figures, str(stage["stage"]), needs, escape(_names(stage["operators"])))
            figures = [""] * len(figures)
    out.print()
    out.print(table)
    for path in written:
        out.print(f"\nWritten: {escape(path)}")


def _head(data: dict[str, Any]) -> list[str]:
    size = f"{data['operators']} operators in {len(data['stages'])} stages on {data['ranks']} ranks"
    lines = [
        f"{printable(data['graph'])}: {size}, {data['micro_batches']} micro-batches",
        f"step {format_seconds(data['step_s'])}{_found(data)}",
    ]
    if data.get("chain_step_s") is not None:
        chain = f"{format_seconds(data['chain_step_s'])} ({data['chain_schedule']})"
        lines.append(f"{percent(data['gain'])} shorter than the best chain, {chain}")
    if data["proven"]:
        lines.append(f"no step can be shorter, by {data['bound_reason']}")
    else:
        bound = f"{format_seconds(data['lower_bound_s'])}, by {data['bound_reason']}"
        lines.append(f"not proven: {data['gap']:.3%} above the lower bound {bound}")
    return lines


def _found(data: dict[str, Any]) -> str:
    """Return how the lists were found, or their file if they were not searched."""
    if "found_by" not in data:
        return f", of {printable(data['schedule'])}"
    steps = f"{data['search_steps']:,} steps in {data['search_time_s']:.1f} s"
    return f", found by {data['found_by']}; {steps}{'; interrupted' if data['interrupted'] else ''}"


def _names(names: Sequence[str]) -> str:
    """Return all of a few names, the ends of many."""
    shown = names if len(names) <= MOST_NAMES else [*names[: MOST_NAMES - 1], "…", names[-1]]
    return printable(" ".join(shown))
