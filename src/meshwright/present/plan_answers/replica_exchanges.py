"""Print the exchanges between replicas of a plan that has entries of ``synchronise``."""

from typing import Any

from rich.console import Console

from meshwright.present.console import percent, plain_table
from meshwright.units import format_bytes, format_seconds


def step_words(data: dict[str, Any]) -> str:
    """Return the unit of a step time in words: a mean step where exchanges are in rounds of steps."""
    if data["unit"] != "round":
        return str(data["unit"])
    steps = data.get("steps_per_round")
    return "step, in the mean" if steps is None else f"step, in the mean of {steps:,}"


def print_exchanges(out: Console, data: dict[str, Any]) -> None:
    """Print a row for each state and axis; nothing of plans without entries."""
    if "codec" not in data["breakdown_s"]:
        return
    table = plain_table(
        "state", "over", "every", "exchange", "sent per step", "seconds", "window", "exposed per step"
    )
    for row in data["synchronise"]:
        table.add_row(
            row["state"],
            row["over"],
            "rule" if row["every"] is None else f"{row['every']:,}",
            format_bytes(row["encoded_bytes"]),
            format_bytes(row["sent_bytes_per_step"]),
            format_seconds(row["exchange_s"]),
            format_seconds(row["window_s"]) if row["window_s"] else "–",
            format_seconds(row["exposed_s_per_step"]),
        )
    used = percent(data["utilisation"])
    out.print(f"\n[bold]Exchanges between replicas[/bold] (of a rank; {used} of a step waits for none)")
    out.print(table)
