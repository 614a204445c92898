"""Equal rows of whole-number columns, in time that grows as the rows do: searches look at millions of them.

Columns hold few different values. Each is numbered by a table of its values, so that all of them fit into one small
code and nothing has to be sorted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
ROOM = 2**22
"""Values below this, or below so many times the rows, are looked up in a table."""
ROWS = 4
RADIX = 2**16
"""Groups that NumPy sorts by radix."""


@dataclass(frozen=True)
class Distinct:
    """``first`` is where each distinct row stands first, ``inverse`` which of them every row is."""

    first: Ints
    inverse: Ints

    def groups(self) -> list[Ints]:
        """Return the rows of each distinct one, in ascending order."""
        narrow = self.inverse.astype(np.uint16) if len(self.first) <= RADIX else self.inverse
        order = np.argsort(narrow, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.inverse))[:-1]) if len(order) else []


def distinct(columns: Sequence[NDArray[np.integer]]) -> Distinct:
    """Equal rows of columns without negative numbers; distinct ones in the order of their columns' values."""
    _, inverse = _numbered(row_codes(columns))
    first = np.zeros(int(inverse.max(initial=-1)) + 1, dtype=np.int64)
    first[inverse[::-1]] = np.arange(len(inverse))[::-1]
    return Distinct(first, inverse)


def row_codes(columns: Sequence[NDArray[np.integer]]) -> Ints:
    """One number for each row, equal where all columns are."""
    codes, size = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        count, numbers = _numbered(column.astype(np.int64))
        if size * count > max(ROOM, ROWS * len(codes)):
            size, codes = _numbered(codes)
        codes, size = codes * count + numbers, size * count
    return codes


def unique_rows(rows: Ints) -> Ints:
    """Return the different ones of rows without negative numbers, in ascending order: (n, …).

    Their bytes, the highest first, are ordered as the rows are, and compared faster than ``np.unique`` compares rows.
    """
    shape = rows.shape[1:]
    size = int(np.prod(shape))
    flat = np.ascontiguousarray(rows.reshape(len(rows), size), dtype=">i8")
    different = sorted(set(flat.view(f"V{flat.itemsize * size}").ravel().tolist()))
    return np.frombuffer(b"".join(different), dtype=">i8").astype(np.int64).reshape(-1, *shape)


def map_distinct_rows(what: Callable[..., object], columns: Sequence[Ints]) -> NDArray[Any]:
    """Map ``what`` over rows, a number or a tuple each, computed once for equal rows: (n, …)."""
    rows = distinct(columns)
    values = np.stack(columns)[:, rows.first].T.tolist()
    return np.array([what(*row) for row in values])[rows.inverse] if values else np.zeros((0,))


def _numbered(values: Ints) -> tuple[int, Ints]:
    """Return the number of different values, and each value's number in ascending order."""
    largest = int(values.max(initial=0))
    if largest >= max(ROOM, ROWS * len(values)):
        different, inverse = np.unique(values, return_inverse=True)
        return max(1, len(different)), inverse.reshape(-1)
    there = np.zeros(largest + 1, dtype=np.bool_)
    there[values] = True
    different = np.flatnonzero(there)
    numbers = np.empty(largest + 1, dtype=np.int64)
    numbers[different] = np.arange(len(different))
    return max(1, len(different)), numbers[values]
