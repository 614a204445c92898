"""Print the estimate of a whole training: goodput and its losses, then days, money and energy."""

from typing import Any

from rich.console import Console

from meshwright.present.console import percent, plain_table
from meshwright.units import GIGA, HOUR_S, format_count, format_seconds

ROWS = {
    "days": ("days", "{:,.1f}"),
    "days_without_failures": ("days without failures", "{:,.1f}"),
    "device_hours": ("device-hours", "{:,.0f}"),
    "usd": ("USD", "{:,.0f}"),
    "kwh": ("kWh, at most", "{:,.0f}"),
}


def print_goodput(out: Console, data: dict[str, Any]) -> None:
    """Print the goodput of a report in its JSON form if it is known."""
    found = data["goodput"]
    if found is None:
        return
    lost = found["lost"]
    parts = ", ".join(f"{name} {percent(share)}" for name, share in lost.items())
    out.print(
        f"\n[bold]Goodput[/bold]: {percent(found['share'])} of the time, {found['useful_tokens_per_s']:,.0f} useful "
        f"tokens/s (lost: {parts})"
    )
    if found["mtbf_hours"] is not None:
        out.print(
            f"A failure every {found['mtbf_hours']:,.1f} hours on {found['nodes']} nodes; a checkpoint of "
            f"{found['checkpoint_bytes'] / GIGA:,.0f} GB every {found['checkpoint_every_s'] / HOUR_S:,.2f} hours, "
            f"written in {format_seconds(found['checkpoint_write_s'])}, for which training waits "
            f"{format_seconds(found['checkpoint_blocked_s'])}"
        )
        _print_policies(out, found["policies"])


def _print_policies(out: Console, policies: list[dict[str, Any]]) -> None:
    table = plain_table("--on-fault, best first", "checkpoint every", "spare nodes", "useful")
    for one in policies:
        every = "–" if one["interval_s"] is None else format_seconds(one["interval_s"])
        table.add_row(one["policy"], every, str(one["spare_nodes"]), percent(one["useful_share"]))
    out.print(table)


def print_training(out: Console, data: dict[str, Any]) -> None:
    """Print the training of a report in its JSON form, if one was requested."""
    training = data["training"]
    if training is None:
        return
    out.print(f"\n[bold]{format_count(training['tokens'])} tokens[/bold]: {training['steps']:,} steps")
    table = plain_table("", "predicted", "80 %: from", "to")
    for name, (words, form) in ROWS.items():
        ends = training[name]
        shown = [None] * 3 if ends is None else [ends["value"], ends["low"], ends["high"]]
        table.add_row(words, *("–" if end is None else form.format(end) for end in shown))
    out.print(table)
