"""Print the answer of ``plan`` in at most 40 lines of 100 columns: plan, memory, reasons, bottleneck, next step."""

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import gib, limited_console, percent, plain_table, shown_mfu
from meshwright.present.plan_answers.cluster_choice import print_choices, print_families, print_models
from meshwright.present.plan_answers.fastest_and_regret import (
    REGRET,
    fastest_lines,
    left_out_line,
    shown_regret,
)
from meshwright.present.plan_answers.layout_text import (
    dtype_lines,
    pipeline_words,
    proposal_layout_words,
    proposal_words,
    recompute_words,
    synchronise_lines,
)
from meshwright.present.plan_answers.prediction import KINDS, PARTS, interval
from meshwright.present.plan_answers.solver_schedules import solved_lines
from meshwright.units import format_count, format_seconds

MOST_LINES = 40
MOST_PLANS = 5
MOST_CLUSTERS = 2
MOST_CAUSES = 4
WIDEST = {"layout": 25, "schedule": 20, "recompute": 9}
"""Widest text of a column of the ranking; the rest is cut."""
LIKELY = 0.9
"""Probability of fitting below which the answer warns."""


def render_summary(data: dict[str, Any], written: Sequence[str], strongest: Sequence[str]) -> None:
    """Print an answer in the public JSON form; ``strongest`` has the fields of plan 1's strongest reasons."""
    best = data["plans"][0]
    with limited_console(MOST_LINES) as out:
        _print_best(out, best)
        if data["doubt"]:
            _print(out, "", f"{data['doubt'][0].upper()}{data['doubt'][1:]}.")
        _print(out, "", *fastest_lines(data))
        if len(data["clusters"]) > 1:
            print_models(out, data)
            print_families(out, data)
            print_choices(out, data, MOST_CLUSTERS)
        elif len(data["plans"]) > 1:
            _print_ranking(out, data["plans"])
        _print_certainty(out, data)
        _print(out, "", left_out_line(data), lines=1)
        _print_advice(out, best["predict"])
        _print_memory(out, best["predict"])
        _print_reasons(out, best["reasons"], strongest)
        _print_binding(out, best["predict"])
        _print_training(out, best["predict"])
        if data["solved"] and data["solved"]["plans"]:
            _print(out, "\n[bold]Solver[/bold]", *solved_lines(data["solved"]["plans"][0]), lines=1)
        _print_next_step(out, written)


def _print(out: Console, title: str, *texts: str, lines: int = 2) -> None:
    """Print a title, then each text on at most ``lines`` lines."""
    if title:
        out.print(title)
    for text in texts:
        wrapped = textwrap.wrap(text, out.width - 2, max_lines=lines, placeholder=" …")
        out.print("\n".join(f"  {escape(line)}" for line in wrapped))


def _print_best(out: Console, best: dict[str, Any]) -> None:
    plan, report = best["plan"], best["predict"]
    title = f"Recommended plan of {plan['model']} on {plan['cluster']}"
    out.print(f"[bold]{escape(textwrap.shorten(title, out.width, placeholder=' …'))}[/bold]")
    name, mfu = shown_mfu(report)
    usd = report["usd_per_step"]
    _print(
        out,
        "",
        proposal_words(best),
        f"{format_seconds(report['step_time_s'])} per step ({interval(report)}), "
        f"{report['tokens_per_s_per_device']:,.0f} tokens/s per device, {name} {percent(mfu)}"
        + ("" if usd is None else f", ${usd:,.{2 if usd >= 1 else 4}f} per step"),
    )


def _print_ranking(out: Console, plans: Sequence[dict[str, Any]]) -> None:
    out.print(f"\n[bold]Ranking[/bold] ({REGRET})")
    table = plain_table("#", "layout", "mb", "schedule", "sharding", "recompute", "step", "regret", "GiB")
    for column in table.columns:
        column.no_wrap, column.max_width = True, WIDEST.get(str(column.header))
    for number, proposal in enumerate(plans[:MOST_PLANS], 1):
        plan, report = proposal["plan"], proposal["predict"]
        table.add_row(
            str(number),
            proposal_layout_words(proposal),
            str(plan["pipeline"]["micro_batch"]),
            pipeline_words(plan["pipeline"]),
            plan["sharding"],
            recompute_words(proposal),
            format_seconds(report["step_time_s"]),
            shown_regret(proposal),
            gib(report["memory_bytes"]["total"]),
        )
    out.print(table)
    for line in dtype_lines(plans[:MOST_PLANS]):
        _print(out, "", line.strip(), lines=1)
    for line in synchronise_lines(plans[:MOST_PLANS]):
        _print(out, "", line.strip())


def _print_certainty(out: Console, data: dict[str, Any]) -> None:
    """Print how many plans the prediction cannot distinguish from the best, and whether better ones may be left."""
    if data["candidates_unplayed"]:
        why = "the search was interrupted" if data["interrupted"] else "simulating them would take long"
        _print(
            out,
            "",
            f"{data['candidates_unplayed']:,} more plans may be better, by at most {data['gap']:.1%}: {why}. "
            "--schedule or --keep leave fewer out.",
        )
    if data["candidates_tied"] > 1:
        _print(
            out,
            "",
            f"{data['candidates_tied']:,} plans are within {data['tie_ratio'] - 1:.1%} of the best: a prediction "
            "cannot tell them apart, `meshwright probe` can.",
        )


def _print_advice(out: Console, report: dict[str, Any]) -> None:
    """Print why the interval is wide and what narrows it, if anything does."""
    advice = (report.get("interval") or {}).get("advice")
    if advice:
        _print(out, "", advice, lines=3)


def _print_memory(out: Console, report: dict[str, Any]) -> None:
    memory = report["memory_bytes"]
    rank = next(stage for stage in memory["stages"] if stage["rank"] == memory["worst_rank"])
    usable = memory["usable"]
    kinds = ", ".join(f"{kind} {gib(rank[kind])}" for kind in KINDS if rank.get(kind))
    _print(
        out,
        "\n[bold]Memory[/bold]",
        f"{gib(memory['total'])} GiB on the fullest device (pipeline rank {rank['rank']}): {kinds}",
        f"usable are {gib(usable)} of {gib(memory['capacity'])} GiB: allocators reserve and fragment the rest",
    )
    probability = report["fits_probability"]
    if probability is not None and probability < LIKELY:
        _print(
            out,
            "",
            f"It fits with a probability of {probability:.0%} only; "
            "`meshwright probe` writes jobs that test it.",
        )


def _print_reasons(out: Console, reasons: Sequence[dict[str, str]], strongest: Sequence[str]) -> None:
    texts = {
        reason["field"]: f"{reason['field']} {reason['value']}: {reason['reason']}" for reason in reasons
    }
    if strongest:
        title = "\n[bold]Why[/bold] (the choices that matter most, against the best plan with another value)"
        _print(out, title, *(texts[field] for field in strongest), lines=1)


def _print_binding(out: Console, report: dict[str, Any]) -> None:
    """Print the largest parts of the step time, and the share of usable memory taken."""
    step, memory = report["step_time_s"], report["memory_bytes"]
    parts = sorted(report["breakdown_s"].items(), key=lambda part: -part[1])[:MOST_CAUSES]
    shares = ", ".join(f"{PARTS.get(name, name)} {s / step:.0%}" for name, s in parts if s >= 0.005 * step)
    taken = memory["total"] / memory["usable"]
    _print(
        out,
        "\n[bold]What binds[/bold]",
        f"step time: {shares}",
        f"memory: {taken:.0%} of what is usable",
        lines=1,
    )


def _print_training(out: Console, report: dict[str, Any]) -> None:
    """Print the cost of a training if its tokens were given."""
    training = report["training"]
    if training is None:
        return
    words = {"days": "days", "usd": "USD", "kwh": "kWh at most"}
    shown = ", ".join(
        f"{ends['value']:,.0f} {unit} ({ends['low']:,.0f} to {ends['high']:,.0f})"
        for unit, ends in ((unit, training[name]) for name, unit in words.items())
        if ends is not None
    )
    _print(out, "", f"{format_count(training['tokens'])} tokens, {training['steps']:,} steps: {shown}")


def _print_next_step(out: Console, written: Sequence[str]) -> None:
    if written:
        file = written[0]
        _print(
            out,
            "\n[bold]Next[/bold]",
            f"The plan is in {', its schedule in '.join(written)}.",
            f"meshwright explain {file} says more; meshwright probe {file} writes jobs that test the prediction",
        )
    else:
        _print(
            out,
            "\n[bold]Next[/bold]",
            "-o plan.yaml writes the plan for `explain`, `export`, `probe` and `run`.",
        )
    _print(out, "", "--why shows every reason, the memory of each rank and which plans were not taken.")
