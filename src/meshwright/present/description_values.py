"""Values of a description as text: numbers with their magnitude, gaps as dashes, long lists shortened."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from meshwright.present.console import WIDTH_OF_FILES, plain_table
from meshwright.units import format_count

MAX_ITEMS = 40
MAX_COLUMNS = 4
"""Columns of facts in one table; the rest follow in another one."""


def value_text(value: Any) -> str:
    """Return a value as one text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,} ({format_count(value)})"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, list | tuple):
        shown = ", ".join(value_text(entry) for entry in value[:MAX_ITEMS])
        return shown + (f", … ({len(value)})" if len(value) > MAX_ITEMS else "")
    if isinstance(value, dict):
        return ", ".join(f"{key} {value_text(entry)}" for key, entry in value.items())
    return str(value)


def print_table(out: Console, table: Table, *texts: int) -> None:
    """Print a table of at most 100 columns below an empty line; ``texts`` are columns to align left."""
    for number, column in enumerate(table.columns):
        column.overflow = "fold"
        column.justify = "left" if number in (0, *texts) else "right"
    out.print()
    out.print(table, width=min(out.width, WIDTH_OF_FILES))


def print_rows(out: Console, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with a line for each row and a column for each key."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    heads = [escape(column) for column in columns]
    table = plain_table(*heads, title=f"[bold]{escape(title)}[/bold]", wrapped=heads)
    for row in rows[:MAX_ITEMS]:
        table.add_row(*(escape(value_text(row.get(column))) for column in columns))
    print_table(out, table)
    if len(rows) > MAX_ITEMS:
        out.print(f"… {len(rows) - MAX_ITEMS} more")


def print_facts(out: Console, title: str, facts: Sequence[Mapping[str, Any]]) -> None:
    """Print tables with a line for each key and a column for each of the given mappings, which have the same keys."""
    for at in range(0, len(facts), MAX_COLUMNS):
        some = facts[at : at + MAX_COLUMNS]
        numbers = [str(number) if len(facts) > 1 else "" for number in range(at, at + len(some))]
        heads = [escape(title), *numbers]
        table = plain_table(*heads, wrapped=heads[1:])
        for key in some[0]:
            table.add_row(f"  {escape(key)}", *(escape(value_text(one.get(key)) or "–") for one in some))
        print_table(out, table, *range(1, len(heads)))
