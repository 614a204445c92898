"""Print and write the answer of ``plan``: its whole answer or the summary, and the tables of clusters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from meshwright.present.console import console
from meshwright.present.plan_answers.cluster_table import csv_table, markdown_table
from meshwright.present.plan_answers.plan_answer import render_answer
from meshwright.present.plan_answers.summary import render_summary


def cluster_tables(rows: list[dict[str, Any]], csv: Path | None, markdown: Path | None) -> dict[Path, str]:
    """Return the texts of the files with a row for each cluster."""
    written = ((csv, csv_table), (markdown, markdown_table))
    return {path: table(rows) for path, table in written if path is not None}


def render_plan_answer(
    data: dict[str, Any],
    strongest: Sequence[str],
    written: Sequence[str],
    report: str | None = None,
    *,
    why: bool,
) -> None:
    """Print the whole answer, or its summary; ``strongest`` has the fields of the best plan's strongest reasons.

    ``written`` are the files of the plan, ``report`` is the page about it.
    """
    if why:
        render_answer(data, written)
    else:
        render_summary(data, written, strongest)
    if report is not None:
        console().print(f"  The report is in {escape(report)}; open it in a browser.", soft_wrap=True)
