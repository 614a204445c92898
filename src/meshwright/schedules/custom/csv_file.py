"""Lists of passes as CSV and back: one row for each pipeline rank, one cell for each action, as ``2F0``.

That is the compute-only form of torch's ``pipelining`` (torch 2.13, ``torch/distributed/pipelining/schedules.py``:
``_dump_csv`` and ``_load_csv``), so that lists can be exchanged with it; stages and micro-batches count from 0 in both.
An empty cell is a slot in which the rank idles: it says nothing that the order does not, and is left out. So is a line
that begins with ``#``. A pair
``(1F4;2B0)OVERLAP_F_B`` is read as its passes in that order. ``lists_from_csv(format_csv(lists)) == lists``.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.schedules.action import MESSAGES, Action, ActionLists, parse_actions

MAX_BYTES = 2**24
MAX_RANKS = 2**16
MOST = 50
"""So many words that are no actions are named."""
FORM = "a CSV file with a row for each rank and a pass in each cell: 0F0,0F1,0B0,0B1"
_PAIR = re.compile(r"\(([^()]*)\)OVERLAP_F_B")


def format_csv(lists: ActionLists) -> str:
    """Return the lists as CSV."""
    return "".join(",".join(map(str, actions)) + "\n" for actions in lists)


def read_lists(path: str | Path) -> list[list[Action]]:
    """Read the lists of a CSV file. Raise InputError with every problem."""
    return lists_from_csv("\n".join(lines_of_file(path)), str(path))


def lines_of_file(path: str | Path) -> tuple[str, ...]:
    """Return the lines of a CSV file of lists, without empty ones at its end. Raise InputError."""
    reason = ""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) <= MAX_BYTES:
            return tuple(raw.decode("utf-8-sig").rstrip().splitlines()) or ("",)
        reason = f"is too large: more than {MAX_BYTES} bytes"
    except UnicodeDecodeError as error:
        reason = f"is not text: byte {error.start} is not UTF-8"
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise InputError(Problem("file", str(path), reason, FORM))


def lists_from_csv(text: str, where: str = "lists") -> list[list[Action]]:
    """Parse the lists of a CSV text; ``where`` names it. Raise InputError with the words that are no actions."""
    try:
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        rows = list(csv.reader(io.StringIO("\n".join(lines).rstrip(), newline="")))
    except csv.Error as error:
        raise InputError(Problem("file", where, f"cannot be read as CSV: {error}", FORM)) from None
    if not rows or len(rows) > MAX_RANKS:
        rule = f"has {len(rows)} rows, not 1 to {MAX_RANKS}"
        raise InputError(Problem("file", where, rule, FORM))
    lists: list[list[Action]] = []
    problems: list[Problem] = []
    for rank, row in enumerate(rows):
        try:
            lists.append(parse_actions(" ".join(map(_words, row))))
        except InputError as error:
            problems += [replace(p, field=f"lists.{rank}") for p in error.problems[: MOST + 1]]
        if len(problems) > MOST:
            break
    if problems:
        raise InputError(list(_shown(problems, where)))
    if not any(lists):
        raise InputError(Problem("file", where, "holds no action", FORM))
    return lists


def without_messages(lists: ActionLists) -> list[list[Action]]:
    """Return the lists without messages between stages."""
    return [[action for action in actions if action.kind not in MESSAGES] for actions in lists]


def _words(cell: str) -> str:
    pair = _PAIR.fullmatch(cell.strip())
    return pair[1].replace(";", " ") if pair else cell


def _shown(problems: list[Problem], where: str) -> Iterator[Problem]:
    yield from problems[:MOST]
    if len(problems) > MOST:
        yield Problem("file", where, f"has more than {MOST} words that are no actions", FORM)
