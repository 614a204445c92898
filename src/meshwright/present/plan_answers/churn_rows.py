"""Print the mean step of each routing around lost peers, where churn is assumed."""

from typing import Any

from rich.console import Console

from meshwright.present.console import plain_table
from meshwright.units import format_seconds


def print_churn(out: Console, data: dict[str, Any]) -> None:
    """Print a row for each routing of a report in its JSON form."""
    if data["churn"] is None:
        return
    table = plain_table("routing", "mean step", "80 %: from", "to", "load ratio")
    for row in data["churn"]:
        times = (row[name] for name in ("step_time_s", "step_time_low_s", "step_time_high_s"))
        shown = ["never ends" if time is None else format_seconds(time) for time in times]
        ratio = "–" if row["load_ratio"] is None else f"{row['load_ratio']:.2f}"
        table.add_row(row["routing"], *shown, ratio)
    out.print("\n[bold]Peers that leave and join[/bold] (simulated)")
    out.print(table)
