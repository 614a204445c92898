"""Print several clusters: the best plan's result on each, and the clusters that no other beats."""

from collections import Counter
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape

from meshwright.present.console import percent, plain_table
from meshwright.units import format_count, format_seconds

MOST_ROWS = 24
WIDEST_NAME, WIDEST_FAMILY = 46, 30
LEFT = {
    "beaten": "that another one beats, by lower bounds of their steps",
    "nothing fits": "on which nothing fits",
    "nothing is legal": "on which nothing is legal",
}


def print_models(out: Console, data: dict[str, Any]) -> None:
    """Print the models of an answer in its JSON form, if there are several."""
    if "models" not in data:
        return
    out.print("\n[bold]Models[/bold], each with its best cluster or the nearest one")
    table = plain_table("model", "parameters", "cluster", "days (80 %)", "USD", "limits")
    for column in table.columns:
        column.no_wrap = True
    table.columns[0].max_width = table.columns[2].max_width = WIDEST_FAMILY
    for row in data["models"]:
        training = (row["predict"] or {}).get("training") or {}
        kept = "kept" if row["meets"] else "no plan fits" if row["predict"] is None else _missed(row)
        table.add_row(
            escape(row["model"]),
            format_count(row["parameters"]),
            escape(row["cluster"] or "–"),
            _of_training(training.get("days")),
            _short((training.get("usd") or {}).get("value")),
            escape(kept),
        )
    out.print(table)


def _of_training(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "–"
    return _with_ends({"it": figure["value"], "it_low": figure["low"], "it_high": figure["high"]}, "it")


def print_families(out: Console, data: dict[str, Any]) -> None:
    """Print the best cluster of each device family of an answer in its JSON form, if there are several clusters."""
    if len(data["clusters"]) < 2:
        return
    limited = any(data[name] is not None for name in ("budget_usd", "deadline_days", "power_kw"))
    out.print(
        "\n[bold]Device families[/bold], each with its best cluster"
        + ("; the nearest where none keeps the limits." if limited else ".")
    )
    own_tokens = len({row["tokens"] for row in data["families"]}) > 1
    tokens = ("tokens",) if own_tokens else ()
    table = plain_table("cluster", *tokens, "days (80 %)", "USD (80 %)", "kW", "spares", "sure", "limits")
    for column in table.columns:
        column.no_wrap = True
    table.columns[0].max_width = WIDEST_FAMILY
    for row in data["families"]:
        table.add_row(
            escape(row["cluster"]),
            *([format_count(row["tokens"])] if own_tokens else []),
            _with_ends(row, "days"),
            _with_ends(row, "usd"),
            _amount(row["power_kw"]),
            str(row["spare_nodes"]),
            percent(row["sure"]),
            escape(_limits(row, limited=limited)),
        )
    out.print(table)
    best = data["families"][0] if len(data["families"]) == 1 else _row_of_first_plan(data)
    if best and best["price_source"]:
        _print_line(out, f"Prices of {best['price_date'] or 'no date'}: {best['price_source']}.")
    if best and best["failure_source"]:
        _print_line(out, f"Failures: {best['failure_source']}.")


def _print_line(out: Console, text: str) -> None:
    out.print(escape(shorten(text, out.width, placeholder=" …")))


def _row_of_first_plan(data: dict[str, Any]) -> dict[str, Any] | None:
    cluster = data["plans"][0]["plan"]["cluster"]
    return next((row for row in data["families"] if row["cluster"] == cluster), None)


def _limits(row: dict[str, Any], *, limited: bool) -> str:
    if row["state"] != "searched":
        return row["state"]
    if not limited or row["meets"]:
        return "kept" if limited else ""
    return _missed(row)


def _missed(row: dict[str, Any]) -> str:
    units = {"days": "days", "usd": "USD", "kw": "kW"}
    over = [f"{_short(row['misses'][name])} {unit}" for name, unit in units.items() if row["misses"][name]]
    return ", ".join(over) + " over" if over else "too unsure"


def _with_ends(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    ends = "" if low is None or high is None else f" ({_short(low)}–{_short(high)})"
    return f"{_short(row[name])}{ends}"


def _short(value: float | None) -> str:
    """Return a number to three digits, in thousands or millions where it is large."""
    if value is None:
        return "–"
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size:
            return f"{value / size:.3g}{unit}" if value < 1000 * size else f"{value / size:,.0f}{unit}"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


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
