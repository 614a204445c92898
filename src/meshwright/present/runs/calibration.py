"""Print a calibration: constants before and after, and the errors of left-out runs."""

from typing import Any

from rich.markup import escape
from rich.table import Table

from meshwright.present.console import console, plain_table, printable

MOST = 20
"""Largest number of runs that are listed one by one."""


def render_calibration(data: dict[str, Any], written: str | None) -> None:
    """Print a calibration in its JSON form."""
    out = console()
    table = plain_table("constant", "before", "after", "after/before")
    for row in data["constants"]:
        ratio = row["after"] / row["before"]
        table.add_row(row["name"], f"{row['before']:.4g}", f"{row['after']:.4g}", f"{ratio:.2f}")
    out.print(table)
    before, after = data["expected_error_before"], data["expected_error_after"]
    out.print(
        f"\nError of a run that was left out, mean of {data['runs']}: {before:.1%} before, {after:.1%} after"
        f" (± {data['uncertainty']:.1%})."
    )
    if data["skipped"]:
        out.print()
        out.print(_skipped(data["skipped"]))
    for remark in data["remarks"]:
        out.print(escape(printable(remark)) + ".")
    if not data["helps"]:
        out.print("That does not help: the present constants stay.")
    if written:
        out.print(f"The cluster with its calibration is in {escape(written)}.")


def _skipped(runs: list[dict[str, str]]) -> Table:
    """Return the runs that were not used, the first of many."""
    table = plain_table("not used", "reason", title=f"{len(runs):,} runs were not used")
    table.columns[1].justify, table.columns[1].no_wrap = "left", False
    for run in runs[:MOST]:
        table.add_row(escape(printable(run["run_id"])), escape(printable(run["reason"])))
    if runs[MOST:]:
        table.add_row(f"… {len(runs) - MOST:,} more", "--json lists every run")
    return table
