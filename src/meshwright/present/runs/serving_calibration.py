"""Print a calibration of serving: the levels, and the errors of runs that were left out."""

from typing import Any

from rich.markup import escape

from meshwright.present.console import console, percent, plain_table, printable
from meshwright.present.runs.validation import print_skipped

MOST = 20
"""Largest number of groups that are listed."""
METRICS = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "tokens/s"}


def render_serving_calibration(data: dict[str, Any], written: str | None) -> None:
    """Print a calibration in its JSON form."""
    out = console()
    table = plain_table("model", "device", "engine", *(f"{name} (runs)" for name in METRICS.values()))
    for group in data["levels"][:MOST]:
        names = (escape(printable(group[key])) for key in ("model", "device", "engine"))
        table.add_row(*names, *(_level(group.get(metric)) for metric in METRICS))
    out.print("[bold]Levels[/bold]: measured over predicted, with one standard deviation of doubt")
    out.print(table)
    if data["levels"][MOST:]:
        out.print(f"… {len(data['levels']) - MOST:,} more (--json lists every group)")
    errors = plain_table("left-out runs", "values", "median before", "after", "mean before", "after")
    for metric, name in METRICS.items():
        before, after = data["left_out"][metric]["before"], data["left_out"][metric]["after"]
        figures = [percent(one[key]) for key in ("median_ape", "mape") for one in (before, after)]
        errors.add_row(name, f"{before['n']:,}", *figures)
    out.print()
    out.print(errors)
    mean = data["left_out"]["mean_log_error"]
    out.print(
        f"\nMean logarithmic error of a left-out run: {mean['before']:.3f} before, {mean['after']:.3f} after."
    )
    reasons: dict[str, list[str]] = {}
    for run in data["skipped"]:
        reasons.setdefault(run["reason"], []).append(run["id"])
    if reasons:
        print_skipped(out, dict(sorted(reasons.items(), key=lambda one: -len(one[1]))))
    if not data["helps"]:
        out.print("That does not help: the present levels stay.")
    if written:
        out.print(f"The levels are in {escape(written)}, for --calibration.")


def _level(effect: dict[str, Any] | None) -> str:
    if effect is None:
        return "–"
    return f"{effect['factor']:.2f} ± {effect['doubt']:.0%} ({effect['rows']:,})"
