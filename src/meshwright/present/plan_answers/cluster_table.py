"""The clusters of an answer as CSV and as a Markdown table, one row for each."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from meshwright.economy.cluster_row import COLUMNS


def csv_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows in their JSON form as CSV; what is unknown is empty."""
    out = io.StringIO()
    table = csv.DictWriter(out, _columns(rows), extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()


def markdown_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows in their JSON form as a Markdown table, numbers to five digits."""
    columns = _columns(rows)
    lines = [_line(columns), _line("--:" if _is_number(rows, name) else "---" for name in columns)]
    lines += [_line(_cell(row[name]) for name in columns) for row in rows]
    return "\n".join(lines) + "\n"


def _columns(rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the usual columns, with the tokens where each cluster has its own number."""
    return (*COLUMNS, "tokens") if len({row["tokens"] for row in rows}) > 1 else COLUMNS


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _is_number(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return any(isinstance(row[name], int | float) for row in rows)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"
    return str(value).replace("|", "\\|").replace("\n", " ")
