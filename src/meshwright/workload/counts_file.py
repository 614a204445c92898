"""Counts of experts in a file: a line for each routed layer, a number for each expert, commas between."""

import csv
from math import isfinite
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.workload.routing import Counts

MOST_BYTES = 2**24
HINT = "a line for each routed layer, a number for each expert, with commas between"


def counts_of_file(path: str | Path, field: str) -> Counts:
    """The counts that a CSV file has. Raises InputError where it can not be read or has other things than numbers."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(field, str(path), f"can not be read: {error}", HINT)) from None
    if len(text) > MOST_BYTES:
        raise InputError(Problem(field, str(path), f"is larger than {MOST_BYTES >> 20} MiB", HINT))
    try:
        rows = tuple(tuple(float(cell) for cell in row) for row in csv.reader(text.splitlines()) if row)
    except ValueError as error:
        raise InputError(Problem(field, str(path), str(error), HINT)) from None
    if not rows:
        raise InputError(Problem(field, str(path), "has no line", HINT))
    if not all(isfinite(count) for row in rows for count in row):
        raise InputError(Problem(field, str(path), "has counts that are no finite numbers", HINT))
    return rows
