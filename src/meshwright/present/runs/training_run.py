"""Print a training run: the course of the loss, the measured and the predicted step, and the files."""

from typing import Any

from rich.markup import escape

from meshwright.present.console import console, percent
from meshwright.units import format_bytes, format_seconds


def render_trained(data: dict[str, Any]) -> None:
    """Print a run in its JSON form."""
    out, losses = console(), data["losses"]
    if not losses:
        out.print(f"{data['first_step']} steps were taken before; nothing was left to train.")
    else:
        last = data["first_step"] + data["steps"] - 1
        out.print(
            f"Steps {data['first_step']} to {last} on {data['ranks']} ranks ({escape(data['device'])}, "
            f"{data['precision']}): loss {losses[0]:.4f} to {losses[-1]:.4f}"
        )
    for found in data["held_out"][-1:]:
        out.print(f"Held-out loss {found['loss']:.4f} behind step {found['step']} ({found['tokens']} tokens)")
    if losses and data["dropped_choices"] is not None:
        out.print(f"Experts had no place for {percent(data['dropped_choices'])} of the choices")
    if data["sequences_not_seen"] is not None:
        out.print(f"Late replicas left out {data['sequences_not_seen']} sequences")
    if losses:
        out.print(
            f"Measured  [bold]{format_seconds(data['step_time_s'])}[/bold] per step, "
            f"{data['tokens_per_s']:,.0f} tokens/s, MFU {percent(data['mfu'])}{_memory(data)}"
        )
        if data["load_average"] >= 1:
            out.print(
                f"Load average {data['load_average']:.1f} before it began: other work makes steps slower"
            )
        out.print(_prediction(data))
    for fault in data["faults"]:
        out.print(escape(fault_line(fault)))
    for change in data["members"]:
        out.print(f"From step {change['step']} on {change['ranks']} ranks: {escape(change['plan'])}")
    if data["stopped_by_signal"]:
        out.print("Stopped by a signal; the same command goes on.")
    for name in ("checkpoint", "export"):
        if data[name]:
            out.print(f"{name.capitalize()}: {escape(data[name])}")
    if data["checkpoint_blocked_s"] is not None:
        blocked, lasted = (format_seconds(data[f"checkpoint_{name}_s"]) for name in ("blocked", "lasted"))
        out.print(f"A checkpoint took {lasted} and kept the run waiting for {blocked} (medians)")
    out.print(f"Metrics of every step: {escape(data['output'])}/metrics.jsonl")


def fault_line(fault: dict[str, Any]) -> str:
    """Return a sentence about a fault of a run."""
    where = "" if fault["rank"] is None else f" of rank {fault['rank']}"
    if fault["peer"] is not None:
        where = f" between ranks {fault['rank']} and {fault['peer']}"
    times = [
        f"{verb} after {format_seconds(fault[name])}"
        for verb, name in (("named", "detected_s"), ("trained on", "resumed_s"))
        if fault[name] is not None
    ]
    ending = f" ({', '.join(times)})" if times else ""
    what = f"{fault['kind'].capitalize()}{where} at step {fault['step']}, {fault['action']}"
    return f"{what}: {fault['evidence']}{ending}"


def _memory(data: dict[str, Any]) -> str:
    total = data["memory_bytes"]["total"]
    return "" if total is None else f", {format_bytes(total)} on the fullest device"


def _prediction(data: dict[str, Any]) -> str:
    found = data["predicted"]
    if found is None:
        return f"Predicted {escape(data['origin']['predicted'])}"
    ratio = data["predicted_over_measured"]
    return (
        f"Predicted [bold]{format_seconds(found['step_time_s'])}[/bold] per step, {ratio:.2f} of the measured time; "
        f"MFU {percent(found['mfu'])}"
    )
