"""The answer of ``plan`` as text: ranked table, reasons, memory per stage, what was rejected, size of the space."""

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from meshwright.plan.short import DEFAULT_RANK_ORDER, Schedule
from meshwright.report.choices import print_choices, print_clusters
from meshwright.report.console import console, gib, percent, plain_table
from meshwright.report.prediction import interval, print_memory
from meshwright.report.solved import render_solved
from meshwright.report.training import print_goodput, print_training
from meshwright.units import format_seconds

DEGREES = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp")


def render_answer(data: dict[str, Any], written: Sequence[str]) -> None:
    """Print an answer in the public JSON form."""
    out = console()
    plans = data["plans"]
    several = len(data["clusters"]) > 1
    if several:
        print_clusters(out, plans)
    out.print(_ranking(plans))
    out.print(
        f"Each is the best of its {'cluster' if several else 'layout and recomputation'}: other schedules, knobs, "
        "shardings and micro-batches are behind it. Steps within 0.1 % count as equal and go by memory."
    )
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
        close = sum(p["predict"]["step_time_s"] <= ratio * plans[0]["predict"]["step_time_s"] for p in plans)
        out.print(
            f"\n{tied:,} plans are within {ratio - 1:.1%} of the best, a tie for a prediction (80 % interval of the "
            f"ratio of two plans); the first {close} here are among them. Probe them."
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
    table = plain_table(
        "#", "layout", "mb", "schedule", "sharding", "recompute", "step", "MFU", "tok/s/dev", "GiB", "$/step"
    )
    for number, proposal in enumerate(plans, 1):
        plan, report = proposal["plan"], proposal["predict"]
        pipeline = plan["pipeline"]
        chunks, usd = pipeline["virtual_stages"], report["usd_per_step"]
        table.add_row(
            str(number),
            layout_words(plan["layout"]),
            str(pipeline["micro_batch"]),
            schedule_words(pipeline["schedule"]) + (f" ×{chunks}" if chunks > 1 else ""),
            plan["sharding"],
            _recompute(proposal),
            format_seconds(report["step_time_s"]),
            percent(report["mfu"]),
            f"{report['tokens_per_s_per_device']:,.0f}",
            gib(report["memory_bytes"]["total"]),
            "–" if usd is None else f"{usd:.2f}",
        )
    return table


def _recompute(proposal: dict[str, Any]) -> str:
    """What all layers recompute; with stages that differ, what their layers do from the first on."""
    if proposal.get("long") is None:
        return _recomputed(proposal["plan"]["recompute"])
    rules = [rule for key, rule in proposal["long"]["layers"].items() if key not in ("embed", "head")]
    return " ".join(dict.fromkeys(_recomputed(rule["recompute"]) for rule in rules))


def _recomputed(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else ",".join(value)


def layout_words(layout: dict[str, Any]) -> str:
    """The degrees above 1, as ``pp4 tp4 dp_shard8``, and what is unusual about them."""
    words = [f"{d}{layout[d]}" for d in DEGREES if layout[d] > 1]
    words += ["sp off"] if layout["tp"] > 1 and layout["sequence_parallel"] is False else []
    order = [axis for axis in layout["rank_order"] if layout[axis] > 1]
    words += [] if order == [a for a in DEFAULT_RANK_ORDER if layout[a] > 1] else ["order", *order]
    return " ".join(words) or "one device"


def schedule_words(schedule: str | dict[str, Any]) -> str:
    """A plan's schedule, as ``1f1b`` or ``zero-bubble (memory limit 0.5)``."""
    if isinstance(schedule, str):
        return schedule
    return str(Schedule.model_validate(schedule, strict=False).choice)


def _print_space(out: Any, data: dict[str, Any]) -> None:
    out.print(
        f"\n[bold]Space[/bold]: {data['candidates_considered']:,} combinations, {data['candidates_legal']:,} legal;"
        f" {data['candidates_evaluated']:,} priced, {data['candidates_feasible']:,} of them fit;"
        f" searched in {data['search_time_s']:.2f} s."
        + (" No legal plan is quicker under the model of costs." if data["optimal"] else "")
        + " Not taken:"
    )
    for reason, count in data["rejected"].items():
        out.print(f"  {count:>12,}  {escape(reason)}")
