"""Print a validation: one line per source and one for all, baselines, a few runs, and the reasons for skipped ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from meshwright.present.console import console, percent, plain_table, printable
from meshwright.units import format_seconds

REASONS_SHOWN = 15
MOST_ROWS = 20
"""Runs that are printed one by one; of more only the figures are."""
IDS_SHOWN = 3
SOURCE_WIDTH = 44

Summary = Mapping[str, Any]
Column = tuple[str, Callable[[Summary], str]]


def _share(section: str, key: str) -> Callable[[Summary], str]:
    return lambda s: percent(s[section][key])


def _signed(section: str) -> Callable[[Summary], str]:
    return lambda s: "–" if s[section]["bias"] is None else f"{s[section]['bias']:+.1%}"


def _count(section: str, key: str) -> Callable[[Summary], str]:
    return lambda s: f"{s[section][key]:,}"


def _spearman(s: Summary) -> str:
    value = s["ranking"]["spearman_median"]
    return "–" if value is None else f"{value:.2f}"


STEP_TIME: tuple[Column, ...] = (
    ("rows", lambda s: f"{s['rows']:,}"),
    ("coverage", lambda s: percent(s["coverage"])),
    ("timed", _count("step_time", "n")),
    ("MAPE", _share("step_time", "mape")),
    ("median", _share("step_time", "median_ape")),
    ("bias", _signed("step_time")),
    ("p90", _share("step_time", "p90_ape")),
    ("in interval", _share("step_time", "interval_coverage")),
    ("own MFU", _share("step_time", "own_mfu_mape")),
    ("blind MFU", _share("step_time", "blind_mfu_mape")),
)
RANKING: tuple[Column, ...] = (
    ("groups", _count("ranking", "groups")),
    ("Spearman", _spearman),
    ("pairs right", _share("ranking", "pairs_right")),
    ("regret", _share("ranking", "regret_mean")),
    ("largest", _share("ranking", "regret_max")),
    ("best of 3", _share("ranking", "best_of_3_regret_mean")),
)
MEMORY: tuple[Column, ...] = (
    ("with memory", _count("memory", "n")),
    ("MAPE", _share("memory", "mape")),
    ("bias", _signed("memory")),
    ("judged", _count("fits", "n")),
    ("right", _share("fits", "accuracy")),
    ("oom called fit", _share("fits", "oom_called_fit")),
    ("fit called oom", _share("fits", "fit_called_oom")),
)
TABLES: dict[str, tuple[Column, ...]] = {
    "Step time (errors of predicted/measured; beside them those of a fitted and a blind constant MFU)": STEP_TIME,
    "Ranking (groups of runs that differ only in their plan)": RANKING,
    "Memory, and whether it fits": MEMORY,
}


def render_validation(
    summary: Mapping[str, Summary],
    rows: Iterable[Mapping[str, Any]],
    skipped: Mapping[str, Sequence[str]],
    picture: str | None,
) -> None:
    """Print a summary and predicted runs in their JSON form, and the ids of skipped runs by reason."""
    out = console()
    few = list(islice(rows, MOST_ROWS + 1))
    if 0 < len(few) <= MOST_ROWS:
        out.print("[bold]Runs[/bold]")
        out.print(_runs(few))
        out.print()
    for title, columns in TABLES.items():
        out.print(f"[bold]{title}[/bold]")
        out.print(_table(summary, columns))
        out.print()
    print_skipped(out, skipped)
    if picture:
        out.print(f"The picture is in {escape(picture)}.")


def _runs(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table(
        "run", "measured", "predicted", "80 %", "error", "GiB", "predicted GiB", "fits", "outcome"
    )
    for row in rows:
        measured, predicted = row["measured_step_time_s"], row["predicted_step_time_s"]
        gib = row["measured_memory_gib"]
        table.add_row(
            short_name(row["run_id"]),
            "–" if measured is None else format_seconds(measured),
            format_seconds(predicted),
            f"{format_seconds(row['step_time_low_s'])} to {format_seconds(row['step_time_high_s'])}",
            "–" if measured is None else f"{predicted / measured - 1:+.1%}",
            "–" if gib is None else f"{gib:.1f}",
            f"{row['predicted_memory_gib']:.1f}",
            "yes" if row["predicted_fits"] else "no",
            escape(row["measured_outcome"] or "–"),
        )
    return table


def _table(summary: Mapping[str, Summary], columns: tuple[Column, ...]) -> Table:
    table = plain_table("source", *(name for name, _ in columns))
    for source, figures in summary.items():
        table.add_row(short_name(source), *(shown(figures) for _, shown in columns))
    return table


def short_name(source: str) -> str:
    """Return a source's name in at most ``SOURCE_WIDTH`` characters, safe to print."""
    shown = source if len(source) <= SOURCE_WIDTH else source[: SOURCE_WIDTH - 1] + "…"
    return escape(printable(shown)) or "(no source)"


def print_skipped(out: Console, skipped: Mapping[str, Sequence[str]]) -> None:
    """Print the reasons for skipped runs, most frequent first, with some of the runs' ids."""
    if not skipped:
        out.print("Every run was predicted.")
        return
    out.print(f"[bold]Skipped[/bold]: {sum(map(len, skipped.values())):,} runs")
    for reason, ids in list(skipped.items())[:REASONS_SHOWN]:
        named = ", ".join(ids[:IDS_SHOWN]) + (", …" if len(ids) > IDS_SHOWN else "")
        out.print(f"  {len(ids):>8,}  {escape(printable(f'{reason} ({named})'))}", soft_wrap=True)
    rest = [len(ids) for ids in list(skipped.values())[REASONS_SHOWN:]]
    if rest:
        out.print(f"  {sum(rest):>8,}  for {len(rest):,} other reasons (--json lists every run)")
