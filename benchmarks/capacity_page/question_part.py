"""Write one question of the page: its command, the table of its answer, and the check by separate questions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from markdown_table import table

from meshwright.units import format_count

Row = Mapping[str, Any]
UNITS = {"days": "days", "usd": "USD", "kw": "kW"}


def question_part(question: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paragraphs of one question."""
    yield f"### {question['key']}. {question['title']}"
    if question["remark"]:
        yield question["remark"]
    yield f"```bash\n{question['command']}\n```"
    yield rows_table(question["rows"], question)
    separate = question["separate"]
    same = "equal to" if not separate["differences"] else "**different** from"
    lines = [
        f"Recommended: {question['recommended']}."
        if question["recommended"]
        else "No cluster keeps the limits.",
        f"Doubt: {question['doubt']}." if question["doubt"] else "",
        f"The answer is {same} {separate['questions']} separate questions, one for each {separate['of']}"
        + "".join(f"; {text}" for text in separate["differences"])
        + ".",
    ]
    yield " ".join(line for line in lines if line)
    if question["rejected"]:
        yield "The next cheaper cluster of a family that is too unsure:"
        yield rows_table(question["rejected"], question)


def rows_table(rows: Sequence[Row], question: Mapping[str, Any]) -> str:
    """Return the table of some rows; models and tokens are shown where they differ within the question."""
    columns = dict(COLUMNS)
    for name in ("model", "tokens"):
        if len({row[name] for row in question["rows"]}) == 1:
            del columns[name]
    sure = question["limits"]["sure"]
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    kept = ["kept" if row["meets"] else _missed(row, sure) for row in rows]
    return table(
        (*columns, "limits"), [[*line, said] for line, said in zip(cells, kept, strict=True)]
    ).rstrip()


def _missed(row: Row, sure: float | None) -> str:
    over = [f"{short(value)} {UNITS[name]} over" for name, value in row["misses"].items() if value]
    return "too unsure" if sure is not None else ", ".join(over)


def with_ends(row: Row, name: str) -> str:
    """Return a figure with the ends of its interval."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return short(row[name]) + ("" if low is None else f" ({short(low)}–{short(high)})")


def short(value: float | None) -> str:
    """Return a number to three digits, in thousands or millions where it is large."""
    if value is None:
        return "–"
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.3g} M"
    return (
        f"{value / 1e3:,.0f} k" if abs(value) >= 1e4 else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    )


def percent(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{value:.1%}"


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "model": lambda row: str(row["model"]),
    "cluster": lambda row: str(row["cluster"]),
    "tokens": lambda row: format_count(row["tokens"]),
    "days": lambda row: with_ends(row, "days"),
    "USD": lambda row: with_ends(row, "usd"),
    "kW": lambda row: short(row["power_kw"]),
    "MWh": lambda row: short(row["kwh_site"] and row["kwh_site"] / 1000),
    "spare nodes": lambda row: str(row["spare_nodes"]),
    "goodput": lambda row: percent(row["goodput"]),
    "sure": lambda row: percent(row["sure"]),
    "simulated": lambda row: percent(row["simulated"]),
}
