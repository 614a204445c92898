"""Print a validation of serving runs: errors and choice of layouts by source, levels, a few runs, skipped ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from meshwright.present.console import console, percent, plain_table, printable
from meshwright.present.runs.validation import MOST_ROWS, print_skipped, short_name
from meshwright.units import format_seconds

LEVELS_SHOWN = 12
Summary = Mapping[str, Any]
TITLES = {"ttft": "TTFT", "tpot": "TPOT", "throughput": "tokens/s"}


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1%}"


def _errors(metric: str) -> dict[str, Callable[[Summary], str]]:
    title = TITLES[metric]
    return {
        title: lambda s: f"{s[metric]['n']:,}",
        "median": lambda s: percent(s[metric]["median_ape"]),
        "bias": lambda s: _signed(s[metric]["bias"]),
        "p90": lambda s: percent(s[metric]["p90_ape"]),
        "in 80 %": lambda s: percent(s[metric]["interval_coverage"]),
    }


LAYOUTS: dict[str, Callable[[Summary], str]] = {
    "groups": lambda s: f"{s['layouts']['groups']:,}",
    "best": lambda s: percent(s["layouts"]["top1"]),
    "within 5 %": lambda s: percent(s["layouts"]["within_5_percent"]),
    "pairs right": lambda s: percent(s["layouts"]["pairs_right"]),
    "regret": lambda s: percent(s["layouts"]["regret_mean"]),
    "of largest tp": lambda s: percent(s["layouts"]["largest_tp_regret_mean"]),
    "of smallest": lambda s: percent(s["layouts"]["smallest_regret_mean"]),
}


def render_serving_validation(
    summary: Mapping[str, Summary],
    rows: Iterable[Mapping[str, Any]],
    skipped: Mapping[str, Sequence[str]],
    levels: Mapping[str, tuple[int, int]],
    picture: str | None,
) -> None:
    """Print a summary and predicted runs in their JSON form; ``levels``: runs behind and runs here by name."""
    out = console()
    few = list(islice(rows, MOST_ROWS + 1))
    if 0 < len(few) <= MOST_ROWS:
        out.print("[bold]Runs[/bold]")
        out.print(_runs(few))
        out.print()
    for metric in TITLES:
        measured = {source: one for source, one in summary.items() if one[metric]["n"]}
        _print_table(out, measured, _errors(metric), f"{TITLES[metric]} (errors of predicted/measured)")
    out.print(
        f"Predicted: {percent(summary['all']['coverage'])} of the runs with model, gpu, lengths and load."
    )
    out.print()
    competing = {source: one for source, one in summary.items() if one["layouts"]["groups"]}
    _print_table(out, competing, LAYOUTS, "Choice among measured layouts, by tokens/s of a device")
    _print_levels(out, levels)
    print_skipped(out, skipped)
    if picture:
        out.print(f"The picture is in {escape(picture)}.")


def _print_table(
    out: Console, summary: Mapping[str, Summary], columns: Mapping[str, Callable[[Summary], str]], title: str
) -> None:
    table = plain_table("source", *columns)
    for source, figures in summary.items():
        table.add_row(short_name(source), *(shown(figures) for shown in columns.values()))
    if summary:
        out.print(f"[bold]{title}[/bold]")
        out.print(table)
        out.print()


def _print_levels(out: Console, levels: Mapping[str, tuple[int, int]]) -> None:
    """Print the levels that most runs have."""
    ordered = sorted(levels.items(), key=lambda one: -one[1][1])
    out.print("[bold]Levels[/bold] (factors of all times of a model, device and engine)")
    for name, (behind, here) in ordered[:LEVELS_SHOWN]:
        out.print(f"  {here:>6,} runs  {escape(printable(name))}: {behind:,} measured", soft_wrap=True)
    if ordered[LEVELS_SHOWN:]:
        rest = sum(here for _, (_, here) in ordered[LEVELS_SHOWN:])
        out.print(f"  {rest:>6,} runs  {len(ordered) - LEVELS_SHOWN:,} other levels")
    out.print()


def _runs(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table("run", "TTFT", "80 %", "TPOT", "80 %", "tokens/s of a device", "80 %")
    rate = "predicted_output_tokens_per_s_per_device"
    for row in rows:
        table.add_row(
            short_name(row["id"]),
            *_times(row["predicted_ttft_s"], row["ttft_low_s"], row["ttft_high_s"]),
            *_times(row["predicted_tpot_s"], row["tpot_low_s"], row["tpot_high_s"]),
            "–" if row[rate] is None else f"{row[rate]:,.0f}",
            "–" if row[rate] is None else f"{row['throughput_low']:,.0f} to {row['throughput_high']:,.0f}",
        )
    return table


def _times(value: float | None, low: float, high: float) -> tuple[str, str]:
    if value is None:
        return "–", "–"
    return format_seconds(value), f"{format_seconds(low)} to {format_seconds(high)}"
