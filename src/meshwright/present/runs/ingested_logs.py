"""Print ingested logs: one line for each, then doubtful points, and the table if it was not written."""

import sys
from typing import Any

from meshwright.present.console import console, plain_table
from meshwright.units import format_seconds


def render_ingest(data: dict[str, Any], table: str, written: str | None) -> None:
    """Print ingested logs in their JSON form."""
    if written is None:
        print(table, end="", flush=True)
    else:
        out = console()
        lines = plain_table("log", "framework", "steps used", "step (median)", "10 to 90 %", "outcome")
        for row in data["rows"]:
            lines.add_row(
                row["log"],
                row["reader"],
                str(row["steps"]),
                _seconds(row["step_time_s"]),
                _spread(row),
                row["cells"].get("outcome", ""),
            )
        out.print(lines)
        print(f"\nput into {written}: {len(data['rows'])}", flush=True)
    for row in data["rows"]:
        for problem in row["problems"]:
            warning = f"Warning: {row['log']}: {problem['field']}: {problem['rule']}. {problem['suggestion']}"
            print(warning.rstrip(), file=sys.stderr)


def _seconds(value: float | None) -> str:
    return "" if value is None else format_seconds(value)


def _spread(row: dict[str, Any]) -> str:
    """Return the spread relative to the median, the same for rates and seconds."""
    low, high = row["low_s"], row["high_s"]
    return "" if not low or not high else f"×{high / low:.2f}"
