"""Print the answer of ``plan`` for plans that serve: the best plans, reasons, engines, clusters, what was not taken."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import console, plain_table
from meshwright.units import format_seconds

OBJECTIVES = {
    "throughput": "most output tokens per second",
    "cost": "least dollars",
    "latency": "least latency of a request",
}


def render_serving_plans(data: dict[str, Any], written: Sequence[str], *, why: bool) -> None:
    """Print an answer in its JSON form; ``why``: with all refusals and the Pareto set."""
    out, first = console(), data["plans"][0]
    serving = first["predict"]["serving"]
    out.print(
        f"[bold]{serving['output_tokens_per_s']:,.0f} output tokens/s[/bold] (predicted) on "
        f"{escape(first['plan']['cluster'])} under {escape(first['plan']['stack'])}; "
        f"objective: {OBJECTIVES[data['objective']]}"
    )
    out.print(_ranking(data["plans"]))
    for number, one in enumerate(data["plans"], 1):
        pools = "; ".join(_pool(name, pool) for name, pool in one["plan"]["pools"].items())
        out.print(f"  {number}  {escape(pools)}", soft_wrap=True)
    out.print("Each has other layouts than those above it; of equal layouts the best is shown.")
    if data["candidates_tied"] > 1:
        part = data["tie_ratio"] - 1
        out.print(
            f"{data['candidates_tied']:,} plans are within {part:.0%} of the best: a tie for a prediction."
        )
    out.print("\n[bold]Why plan 1[/bold] (against the best plan with another value)")
    for reason in first["reasons"]:
        out.print(f"  {reason['field']}: {escape(reason['value'])}  [dim]{escape(reason['reason'])}[/dim]")
    _print_rows(out, "Engines", "stack", data["engines"])
    _print_rows(out, "Clusters", "cluster", data["clusters"])
    if why:
        _print_rows(
            out, "No plan is better in tokens/s, latency and devices at once", "stack", data["pareto"], 1
        )
        _print_rejected(out, data)
    if written:
        out.print(f"\nPlan 1 is in {escape(', '.join(written))}.")


def _ranking(plans: list[dict[str, Any]]) -> Any:
    table = plain_table(
        *(
            "#",
            "engine",
            "devices",
            "requests",
            "first token",
            "per token",
            "tokens/s",
            "/device",
            "$/M tokens",
        ),
        texts=("engine",),
    )
    for number, one in enumerate(plans, 1):
        plan, serving = one["plan"], one["predict"]["serving"]
        devices = sum(pool["devices"] for pool in serving["pools"].values())
        usd, workload = serving["usd_per_million_output_tokens"], plan["workload"]
        load = workload.get("concurrency")
        table.add_row(
            str(number),
            escape(plan["stack"]),
            str(devices),
            f"{load:,}" if load else f"{workload['rate_per_s']:g}/s",
            _seconds(serving["ttft_s"]),
            _seconds(serving["tpot_s"]),
            f"{serving['output_tokens_per_s']:,.0f}",
            f"{serving['output_tokens_per_s_per_device']:,.1f}",
            "–" if usd is None else f"{usd:,.2f}",
        )
    return table


def _pool(name: str, pool: dict[str, Any]) -> str:
    """Return the replicas of a pool and their degrees above 1."""
    degrees = " ".join(f"{key}{size}" for key, size in pool["layout"].items() if size > 1) or "tp1"
    formats = " ".join(pool["quantise"].values())
    limit = pool["batching"].get("max_sequences")
    most = "" if limit is None else f", at most {limit:,}"
    return f"{name}: {pool['replicas']}× {degrees}{f' {formats}' if formats else ''}{most}"


def _print_rows(out: Console, title: str, key: str, rows: list[dict[str, Any]], least: int = 2) -> None:
    """Print the figures of the best plan of each engine or cluster, where there are several."""
    if len(rows) < least:
        return
    table = plain_table(key, "pools", "devices", "first token", "per token", "tokens/s", "$/hour")
    for row in rows:
        if row["cluster"] is None:
            table.add_row(escape(row[key]), *("none",) * 6)
            continue
        usd = row["usd_per_hour"]
        table.add_row(
            escape(row[key]),
            str(row["pools"]),
            str(row["devices"]),
            _seconds(row["ttft_s"]),
            _seconds(row["tpot_s"]),
            f"{row['output_tokens_per_s']:,.0f}",
            "–" if usd is None else f"{usd:,.2f}",
        )
    out.print(f"\n[bold]{title}[/bold]")
    out.print(table)


def _print_rejected(out: Console, data: dict[str, Any]) -> None:
    out.print(
        f"\n[bold]Space[/bold]: {data['candidates_considered']:,} replicas, {data['candidates_legal']:,} of them legal "
        f"and with room; {data['candidates_combined']:,} ways to combine them, "
        f"{data['candidates_evaluated']:,} priced; "
        f"bounds ruled out the others. Searched in {data['search_time_s']:.2f} s. Not taken:"
    )
    for reason, count in data["rejected"].items():
        out.print(f"  {count:>12,}  {escape(reason)}")


def _seconds(value: float | None) -> str:
    return "none" if value is None else format_seconds(value)
