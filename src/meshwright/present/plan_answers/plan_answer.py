"""Print the whole answer of ``plan``: ranked table, reasons, memory per stage, rejected plans, size of the space."""

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from meshwright.present.console import console, gib, percent, plain_table, shown_mfu
from meshwright.present.plan_answers.cluster_choice import (
    print_choices,
    print_clusters,
    print_families,
    print_models,
)
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
    recompute_words,
    synchronise_lines,
)
from meshwright.present.plan_answers.prediction import interval, print_memory
from meshwright.present.plan_answers.solver_schedules import render_solved
from meshwright.present.plan_answers.training_estimate import print_goodput, print_training
from meshwright.units import format_seconds

MOST_VALUES = 4
"""Values of a key that are printed; the JSON has all."""


def render_answer(data: dict[str, Any], written: Sequence[str]) -> None:
    """Print an answer in the public JSON form."""
    out = console()
    plans = data["plans"]
    several = len(data["clusters"]) > 1
    if several:
        print_clusters(out, plans)
    out.print(_ranking(plans))
    for line in (*dtype_lines(plans), *synchronise_lines(plans)):
        out.print(escape(line))
    out.print(
        f"Each is the best of its {'cluster' if several else 'layout and recomputation'}: other schedules, knobs, "
        "shardings and micro-batches are behind it. Steps within 0.1 % count as equal and go by memory. "
        f"{REGRET.capitalize()}."
    )
    for line in fastest_lines(data):
        out.print(escape(line))
    print_models(out, data)
    print_families(out, data)
    print_choices(out, data)
    if data["candidates_unplayed"]:
        why = (
            "the search was interrupted" if data["interrupted"] else "playing their schedules would take long"
        )
        out.print(
            f"\nThe best of the plans that were priced: {data['candidates_unplayed']:,} more may be better, none by "
            f"more than {data['gap']:.1%}, and {why}. Fewer schedules (--schedule) or fixed choices (--keep) leave "
            "fewer out."
        )
    tied, ratio = data["candidates_tied"], data["tie_ratio"]
    if tied > 1:
        least = data["fastest"]["predict"]["step_time_s"]
        close = sum(p["predict"]["step_time_s"] <= ratio * least for p in plans)
        out.print(
            f"\n{tied:,} plans are within {ratio - 1:.1%} of the fastest, a tie for a prediction (80 % interval of the "
            f"ratio of two plans); {close} of those here are among them. Probe them."
        )
    out.print(f"The step time of plan 1: {interval(plans[0]['predict'])}.")
    out.print("\n[bold]Why plan 1[/bold] (each choice against the best plan with another value)")
    for reason in plans[0]["reasons"]:
        out.print(f"  {reason['field']}: {reason['value']}  [dim]{escape(reason['reason'])}[/dim]")
    out.print("\n[bold]Memory of plan 1[/bold] (predicted, per device of each pipeline rank)")
    print_memory(out, plans[0]["predict"]["memory_bytes"])
    if plans[0]["predict"]["training"]:
        print_goodput(out, plans[0]["predict"])
        print_training(out, plans[0]["predict"])
    if data["solved"]:
        render_solved(out, data["solved"])
    _print_space(out, data)
    origin = plans[0]["predict"]["origin"]
    out.print(f"\n[dim]Times: {escape(origin['step_time_s'])}.[/dim]")
    out.print(f"[dim]Price: {escape(origin['usd_per_hour'])}.[/dim]")
    if written:
        out.print(f"\nPlan 1 is in {escape(', its lists in '.join(written))}.")


def _ranking(plans: list[dict[str, Any]]) -> Any:
    mfu_name, _ = shown_mfu(plans[0]["predict"])
    table = plain_table(
        "#",
        "layout",
        "mb",
        "schedule",
        "sharding",
        "recompute",
        "step",
        "regret",
        mfu_name,
        "tok/s/dev",
        "GiB",
        "$/step",
        wrapped=("layout",),
    )
    table.padding = (0, 1, 0, 0)
    for number, proposal in enumerate(plans, 1):
        plan, report = proposal["plan"], proposal["predict"]
        pipeline = plan["pipeline"]
        usd = report["usd_per_step"]
        table.add_row(
            str(number),
            proposal_layout_words(proposal),
            str(pipeline["micro_batch"]),
            pipeline_words(pipeline),
            plan["sharding"],
            recompute_words(proposal),
            format_seconds(report["step_time_s"]),
            shown_regret(proposal),
            percent(shown_mfu(report)[1]),
            f"{report['tokens_per_s_per_device']:,.0f}",
            gib(report["memory_bytes"]["total"]),
            "–" if usd is None else f"{usd:.2f}",
        )
    return table


def _print_space(out: Any, data: dict[str, Any]) -> None:
    out.print(
        f"\n[bold]Space[/bold]: {data['candidates_considered']:,} combinations, {data['candidates_legal']:,} legal;"
        f" {data['candidates_evaluated']:,} priced, {data['candidates_feasible']:,} of them fit;"
        f" searched in {data['search_time_s']:.2f} s."
        + (" No legal plan is quicker than the fastest under the model of costs." if data["optimal"] else "")
        + " Not taken:"
    )
    for reason, count in data["rejected"].items():
        out.print(f"  {count:>12,}  {escape(reason)}")
    out.print(left_out_line(data))
    for row in data["space"]["left_out"]:
        values = [str(value) for value in row["values"]]
        more = " …" if len(values) > MOST_VALUES else ""
        out.print(escape(f"  {row['key']}: {'; '.join(values[:MOST_VALUES])}{more} ({row['why']})"))
