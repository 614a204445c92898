"""Open a CSV file of measured runs, and read its header.

A byte-order mark is dropped, bytes that are not UTF-8 are replaced.
"""

import csv
import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem

HEAD_BYTES = 4096


@contextmanager
def opened_table(path: str | Path) -> Iterator[io.TextIOWrapper]:
    """Yield the lines of a file. Raises InputError if it cannot be opened, is empty or is binary."""
    with _opened(path) as raw:
        _check_text(raw.peek(HEAD_BYTES), path)
        yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")


def read_header(reader: Any, path: str, needed: Collection[str], known: Collection[str]) -> list[str]:
    """Return the names of the columns. Raises InputError without any of those needed, or for a known one twice."""
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise InputError(Problem("runs", path, f"is no CSV: {error}", "a header line")) from error
    if not set(needed) & set(header):
        rule = f"has none of the columns {', '.join(needed)} in its first line"
        hint = "columns as in docs/accuracy.md, with commas between"
        raise InputError(Problem("runs", path, rule, hint))
    twice = sorted({name for name in header if name in known and header.count(name) > 1})
    if twice:
        raise InputError([Problem(f"runs.{name}", path, "is a column twice", "keep one") for name in twice])
    return header


def _opened(path: str | Path) -> io.BufferedReader:
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(Problem("runs", str(path), f"cannot be read: {reason}", "check the path")) from error


def _check_text(head: bytes, path: str | Path) -> None:
    hint = "a CSV file in UTF-8 with a header line"
    if not head.strip():
        raise InputError(Problem("runs", str(path), "the file is empty", hint))
    if b"\0" in head:
        raise InputError(Problem("runs", str(path), "is binary, or text that is not UTF-8", hint))
