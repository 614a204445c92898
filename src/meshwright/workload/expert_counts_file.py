"""Read counts of experts from a file: a line for each routed layer, a number for each expert.

Pairs begin with the line ``pairs``; then come, for each routed layer, as many lines as there are experts: how often a
token chose the line's expert and each other one, and on the diagonal how often it chose the line's at all.
"""

import csv
from array import array
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.workload.expert_routing import Counts, Pairs

MOST_BYTES = 2**24
MOST_BYTES_OF_PAIRS = 2**27
PAIRS = "pairs"
HINT_OF_PAIRS = (
    "the line `pairs`, then for each routed layer a symmetric table of counts, a line for each expert"
)
HINT = "a line for each routed layer, a number for each expert, with commas between"


def read_expert_counts(path: str | Path, field: str) -> Counts:
    """Read the counts of a CSV file. Raise InputError if it is unreadable or has more than numbers."""
    return _counts(_read(path, field, MOST_BYTES), path, field)


def read_counts_or_pairs(path: str | Path, field: str) -> Counts | Pairs:
    """Read the counts, or the pairs, of a CSV file. Raise InputError."""
    text = _read(path, field, MOST_BYTES_OF_PAIRS)
    first, _, rest = text.partition("\n")
    return _pairs(rest, path, field) if first.strip() == PAIRS else _counts(text, path, field)


def _read(path: str | Path, field: str, most: int) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(most + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(field, str(path), f"can not be read: {error}", HINT)) from None
    if len(text) > most:
        raise InputError(Problem(field, str(path), f"is larger than {most >> 20} MiB", HINT))
    return text


def _counts(text: str, path: str | Path, field: str) -> Counts:
    try:
        rows = tuple(tuple(float(cell) for cell in row) for row in csv.reader(text.splitlines()) if row)
    except ValueError as error:
        raise InputError(Problem(field, str(path), str(error), HINT)) from None
    if not rows:
        raise InputError(Problem(field, str(path), "has no line", HINT))
    if not all(isfinite(count) for row in rows for count in row):
        raise InputError(Problem(field, str(path), "has counts that are no finite numbers", HINT))
    return rows


def _pairs(text: str, path: str | Path, field: str) -> Pairs:
    lines = [line for line in text.splitlines() if line.strip()]
    experts = lines[0].count(",") + 1 if lines else 0
    values = array("d")
    try:
        for line in lines:
            values.extend(map(float, line.split(",")))
    except ValueError as error:
        raise InputError(Problem(field, str(path), str(error), HINT_OF_PAIRS)) from None
    rules = list(_wrong_tables(values, experts, len(lines)))
    if rules:
        raise InputError(Problem(field, str(path), rule, HINT_OF_PAIRS) for rule in rules)
    return Pairs(experts, values.tobytes())


def _wrong_tables(values: "array[float]", experts: int, lines: int) -> Iterator[str]:
    """Yield the reasons why numbers form no such tables."""
    if not lines or lines % experts or len(values) != lines * experts:
        yield f"has {lines} lines, the first of {experts} numbers: no tables of as many lines as numbers"
        return
    if not (isfinite(sum(values)) and min(values) >= 0):
        yield "has counts that are no finite numbers from 0 on"
        return
    tables = (values[at : at + experts**2] for at in range(0, len(values), experts**2))
    for layer, table in enumerate(tables):
        rows = [table[at : at + experts] for at in range(0, len(table), experts)]
        if any(row != table[at::experts] for at, row in enumerate(rows)):
            yield f"table {layer} is not symmetric"
        elif any(max(row) > row[at] for at, row in enumerate(rows)):
            yield f"table {layer} has experts chosen with others more often than at all"
        elif not sum(table):
            yield f"table {layer} counts nothing"
