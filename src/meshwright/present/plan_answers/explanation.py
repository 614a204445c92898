"""Print an explanation: a summary, then time, memory, choices, schedules, sensitivity and changes of the answer."""

from collections.abc import Iterable
from textwrap import fill
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import console, gib, percent, plain_table
from meshwright.present.plan_answers.layer_ranges import render_ranges
from meshwright.units import format_seconds

SCHEDULES = 8
"""Largest number of other schedules that are printed; the JSON has all."""


def render_explanation(data: dict[str, Any], plan: str, other: str | None) -> None:
    """Print an explanation in its JSON form; ``other`` is the file of the plan that it is compared with."""
    out = console()
    print_sentences(out, f"{plan} against {other}" if other else plan, data["summary"])
    if other:
        _print_against(out, data["against"], plan, other)
        return
    if data["each"]:
        _print_each(out, data["each"])
        return
    _print_parts(out, data)
    _print_choices(out, data)
    rates = [one["text"] for one in data["sensitivity"]]
    work = [f"{name}: {one['text']}" for name, tries in data["workload"].items() for one in tries]
    print_sentences(out, "How the step answers to the cluster (predicted again with each change)", rates)
    print_sentences(out, "This plan with another batch or sequence length (predicted)", work)
    print_sentences(out, "Where the answer changes", [one["text"] for one in data["turns"]])
    out.print(
        f"\n[dim]A tie: two predictions whose ratio is below {data['tie_ratio']:.3f}, inside its 80 % interval.[/dim]"
    )
    out.print(f"[dim]Times: {escape(data['origin']['step_time_s'])}.[/dim]")


def print_sentences(out: Console, title: str, lines: Iterable[str]) -> None:
    """Print a heading and a line for each sentence; nothing without sentences."""
    texts = list(lines)
    if texts:
        out.print(f"\n[bold]{escape(title)}[/bold]")
    for line in texts:
        out.print(escape(fill(line, out.width, initial_indent="  ", subsequent_indent="    ")))


def _print_parts(out: Console, data: dict[str, Any]) -> None:
    print_sentences(out, "Where the time goes (predicted)", data["time"]["text"])
    table = plain_table("  part", "time", "share")
    for part in data["time"]["parts"]:
        table.add_row(f"  {part['part']}", format_seconds(part["seconds"]), percent(part["share"]))
    out.print(table)
    print_sentences(out, "Where the memory goes (predicted)", data["memory"]["text"])


def _print_choices(out: Console, data: dict[str, Any]) -> None:
    schedule = data["schedule"]
    print_sentences(
        out, "Effect of each choice: one step away (predicted)", [one["text"] for one in data["choices"]]
    )
    others = [one["text"] for one in schedule["others"][:SCHEDULES]]
    refused = [f"{one['schedule']}: {one['rule']}" for one in schedule["refused"]]
    print_sentences(out, "The schedule (predicted)", [schedule["text"], *others, *refused])
    print_sentences(out, "The best others of a search (predicted)", [one["text"] for one in data["rivals"]])


def _print_each(out: Console, each: dict[str, Any]) -> None:
    """Print the values of a choice: plans that fit by their time, then the others, then what is refused."""
    table = plain_table(
        f"  {each['choice']}",
        "step",
        "change",
        "GiB",
        "fits",
        "because",
        texts=["because"],
        wrapped=["because"],
    )
    allowed = [one for one in each["values"] if one["rule"] is None]
    for one in allowed:
        table.add_row(
            f"{'*' if one['own'] else ' '} {one['value']}",
            format_seconds(one["step_time_s"]),
            "" if one["own"] else f"{one['ratio'] - 1:+.1%}",
            gib(one["memory_bytes"]),
            "yes" if one["fits"] else "no",
            one["parts"],
        )
    out.print()
    out.print(table)
    out.print("[dim]* as in the plan. Predicted; differences of the busiest rank's exposed time.[/dim]")
    print_sentences(
        out, "Not possible", [f"{one['value']}: {one['rule']}" for one in each["values"] if one["rule"]]
    )


def _print_against(out: Console, data: dict[str, Any], plan: str, other: str) -> None:
    changes = [f"{name}: {a} → {b}" for name, (a, b) in data["changes"].items()]
    print_sentences(out, f"Choices: {plan} → {other}", changes)
    print_sentences(out, "Time and memory by part, the largest difference first (predicted)", data["lines"])
    render_ranges(out, data["ranges"], plan, other)
    print_sentences(out, "Where the order turns", [one["text"] for one in data["turns"]])
