"""Print a Report: time and its breakdown, memory per stage, money and energy, each with its origin."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import console, gib, percent, plain_table
from meshwright.present.plan_answers.churn_rows import print_churn
from meshwright.present.plan_answers.replica_exchanges import print_exchanges, step_words
from meshwright.present.plan_answers.training_estimate import print_goodput, print_training
from meshwright.units import format_seconds

KINDS = (
    *("parameters", "gradients", "optimizer", "activations", "working", "buffers", "workspace"),
    "synchronise",
)
"""Kinds of memory; the last one only of plans with entries of ``synchronise``."""
PARTS = {
    "compute": "compute",
    "tp": "tensor parallelism",
    "cp": "context parallelism",
    "ep": "expert exchange",
    "pp": "pipeline sends",
    "dp": "data parallelism",
    "bubble": "pipeline bubble",
    "optimizer": "optimizer",
    "host": "copies to hosts",
    "codec": "codecs",
}
"""Parts of a step's time in words."""


def render_report(data: dict[str, Any], trace: str | None, times: str | None = None) -> None:
    """Print a Report in its JSON form."""
    out = console()
    step = data["step_time_s"]
    out.print(
        f"[bold]{format_seconds(step)}[/bold] per {step_words(data)} ({data['kind']}; {interval(data)})"
    )
    out.print(f"{data['tokens_per_s']:,.0f} tokens/s, {data['tokens_per_s_per_device']:,.1f} per device")
    out.print(f"MFU {percent(data['mfu'])}, causal {percent(data['mfu_causal'])}, HFU {percent(data['hfu'])}")
    print_breakdown(out, data)
    print_exchanges(out, data)
    memory = data["memory_bytes"]
    verdict = "fits" if data["fits"] else "[bold red]does not fit[/bold red]"
    if data["fits_probability"] is not None:
        verdict += f", with probability {data['fits_probability']:.2f} that it does"
    out.print(
        f"\n[bold]Memory[/bold]: {gib(memory['total'])} (80 %: {gib(memory['total_low'])} to "
        f"{gib(memory['total_high'])}) of {gib(memory['capacity'])} GiB on the worst device: {verdict}"
    )
    print_memory(out, memory)
    print_hosts(out, memory)
    print_money(out, data)
    print_goodput(out, data)
    print_training(out, data)
    print_churn(out, data)
    out.print("\n[bold]Origin[/bold]")
    for name, text in data["origin"].items():
        out.print(f"  {name}: [dim]{escape(text)}[/dim]")
    if trace:
        out.print(f"\nThe simulated step is in {escape(trace)}; open it at ui.perfetto.dev.")
    if times:
        out.print(
            f"\nThe times of the stages are in {escape(times)}, with the command that searches lists for them."
        )


def interval(data: dict[str, Any]) -> str:
    """Return the 80 % interval of the step time as text, or that there is none."""
    low, high = data["step_time_low_s"], data["step_time_high_s"]
    if low is None or high is None:
        return "no interval"
    return f"80 %: {format_seconds(low)} to {format_seconds(high)}"


def print_breakdown(out: Console, data: dict[str, Any]) -> None:
    """Print the breakdown of the step time, largest first."""
    table = plain_table("where", "time", "share")
    for name, seconds in sorted(data["breakdown_s"].items(), key=lambda item: -item[1]):
        if seconds:
            table.add_row(name, format_seconds(seconds), percent(seconds / data["step_time_s"]))
    out.print("\n[bold]Time[/bold] (busiest pipeline rank; exposed parts only)")
    out.print(table)


def print_memory(out: Console, memory: dict[str, Any]) -> None:
    """Print the ledger of every pipeline rank."""
    kinds = [kind for kind in KINDS if any(stage.get(kind) for stage in memory["stages"])]
    table = plain_table("GiB on rank", *kinds, "total", "layers", wrapped=("layers",))
    for stage in memory["stages"]:
        layers = " ".join(stage["layers"])
        shown = layers if len(layers) <= 24 else layers[:21] + "…"
        table.add_row(
            str(stage["rank"]), *(gib(stage.get(kind, 0)) for kind in kinds), gib(stage["total"]), shown
        )
    out.print(table)


def print_hosts(out: Console, memory: dict[str, Any]) -> None:
    """Print the memory of a node's host, if any is used."""
    if "host" in memory:
        held, capacity = gib(memory["host"]), gib(memory["host_capacity"])
        out.print(f"On a node's host: {held} of {capacity} GiB, all devices as the rank that has most")


def print_money(out: Console, data: dict[str, Any]) -> None:
    """Print price and energy if they are known."""
    if data["usd_per_hour"] is not None:
        out.print(
            f"\n[bold]Money[/bold]: ${data['usd_per_hour']:,.2f} per hour, ${data['usd_per_step']:,.4f} per step"
        )
    if data["joules_per_step"] is not None:
        out.print(f"[bold]Energy[/bold]: at most {data['joules_per_step'] / 1e6:,.2f} MJ per step")
