"""Print several clusters: the best plan's result on each, and the clusters that no other beats."""

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import percent, plain_table
from meshwright.units import format_seconds

MOST_ROWS = 24
WIDEST_NAME = 46
LEFT = {
    "beaten": "that another one beats, by lower bounds of their steps",
    "nothing fits": "on which nothing fits",
    "nothing is legal": "on which nothing is legal",
}


def print_choices(out: Console, data: dict[str, Any], most_rows: int = MOST_ROWS) -> None:
    """Print the clusters of an answer in its JSON form, if there are several: the best by the objective first."""
    clusters = data["clusters"]
    if len(clusters) < 2:
        return
    searched = [row for row in clusters if row["state"] == "searched"]
    best = data["pareto"]
    out.print(
        f"\n[bold]Clusters[/bold]: {len(searched)} of {len(clusters)} with their best plan. Beaten by none in time, "
        f"money and energy of a {data['per']}: {len(best)}, the quickest first."
    )
    table = plain_table("cluster", "$/device-h", "step", "goodput", "time", "USD", "kWh")
    table.columns[0].no_wrap, table.columns[0].max_width = True, WIDEST_NAME
    others = [row for row in searched if row not in best]
    for row in [*best, *others][:most_rows]:
        beaten = "" if row in best else "  (beaten)"
        table.add_row(
            escape(row["cluster"]) + beaten,
            _amount(row["usd_per_device_hour"]),
            format_seconds(row["step_time_s"]),
            percent(row["goodput"]),
            _time(row),
            _amount(row["usd"]),
            _amount(row["kwh"]),
        )
    out.print(table)
    if len(searched) > most_rows:
        out.print(f"and {len(searched) - most_rows} more (--json has them all).")
    counts = Counter(row["state"] for row in clusters if row["state"] != "searched")
    if counts:
        left = "; ".join(f"{count} {LEFT[state]}" for state, count in counts.items())
        out.print(f"Not searched: {left}.")


def _time(row: dict[str, Any]) -> str:
    if row["seconds"] is None:
        return "–"
    return f"{row['days']:,.1f} days" if row["days"] >= 1 else format_seconds(row["seconds"])


def _amount(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.4g}"


def print_clusters(out: Console, plans: list[dict[str, Any]]) -> None:
    """Print the cluster of each plan of a ranking."""
    for number, proposal in enumerate(plans, 1):
        out.print(f"Plan {number} is for {escape(proposal['plan']['cluster'])}.")
