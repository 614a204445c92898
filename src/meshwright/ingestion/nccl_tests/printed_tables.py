"""Parse what nccl-tests and rccl-tests print, anywhere in a log: heads, lists of ranks, rows and ends of tables.

Lines are recognised wherever they stand, so prefixes of launchers (``0: ``, ``[1,0]<stdout>:``, names of pods) do no
harm; lines with the same prefix belong together, because tasks print at the same time. Rows that other output
interrupts are joined again. Columns are those of a table's head: early releases have ``redop``
and ``root`` only if they apply, and the largest ``error`` in place of ``#wrong``; late ones may append statistics of
iterations, a time stamp, or the algorithm.

Sources: src/common.cu and src/util.cu of NVIDIA/nccl-tests (a0b82b2, and tables of earlier releases),
projects/rccl-tests/src/common.cu of ROCm/rocm-systems (032d8f6).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshwright.errors import InputError, Problem
from meshwright.ingestion.nccl_tests.table import (
    COLLECTIVES,
    ELEMENT_BYTES,
    Member,
    Row,
    Table,
    collective_name,
    sweep_length,
)

LONGEST_LINE = 4096
MOST_STREAMS = 4096
MOST_WAITING = 64
FIGURES = 4
"""Number of figures per place: time, algbw, busbw and #wrong."""
COLUMNS = ("size", "count", "type", "redop", "root") + 2 * ("time", "algbw", "busbw", "#wrong")
OUTSIDE, INSIDE = "out-of-place", "in-place"

_TYPES = "|".join(sorted(ELEMENT_BYTES, key=len, reverse=True))
_ROW = re.compile(rf"(?<![\w.])(\d{{1,18}})\s+(\d{{1,18}})\s+({_TYPES})(?=\s|$)(.*)")
_FIGURE = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?\*?|N/A|-?nan|inf", re.IGNORECASE)
_SETTINGS = re.compile(
    r"nThread\s+\d+\s+nGpus\s+\d+\s+minBytes\s+(\d{1,18})\s+maxBytes\s+(\d{1,18})\s+"
    r"step:\s*(\d{1,18})\s*\((factor|bytes)\)"
)
_RANK = re.compile(
    r"Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
_HEAD = re.compile(r"\bsize\s+count\s+type\s.*\balgbw\b.*")
_PLACE = re.compile(rf"{OUTSIDE}|{INSIDE}")
_PLACES = re.compile(rf"(?:^|#)\s*(?:({_PLACE.pattern})(?:\s*\(\+ per-iteration\))?\s*)+$")
_STARTING = re.compile(r"Collective test starting:\s*(\S+)")
_END = re.compile(r"Avg bus bandwidth\s*:|Collective test concluded")
_FAILED = re.compile(r"Out of bounds values\s*:\s*(\d+)\s+FAILED")
_TEST = re.compile(rf"\b({'|'.join(('all_reduce', 'all_gather', 'reduce_scatter', *COLLECTIVES))})_perf")
_TAG = re.compile(r"\[\d+\](?=\s|$)")
_CLOCK = re.compile(r"\d{4}[-/]\d\d[-/]\d\d[T ]?|\d\d:\d\d:\d\d([.,]\d+)?")


def tables_of_text(text: str, problems: list[Problem]) -> list[Table]:
    """Return all tables of a log, in order; append their problems to ``problems``."""
    log = _Log(problems)
    for number, line in enumerate(text.splitlines(), start=1):
        log.line(line[:LONGEST_LINE], number)
    return [table for table in log.tables if table.rows]


@dataclass(slots=True)
class _Stream:
    """The table that lines with one prefix belong to, and the form of its rows."""

    beginning: str
    table: Table
    columns: Sequence[str] = COLUMNS
    places: Sequence[str] = (OUTSIDE, INSIDE)
    interrupted: list[str] = field(default_factory=list)


class _Log:
    """Lines of a log, sorted into streams and tables."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.tables: list[Table] = []
        self.streams: dict[str, _Stream] = {}
        self.waiting: dict[str, _Stream] = {}
        self.test = ""

    def line(self, line: str, number: int) -> None:
        """Parse the next line."""
        if found := _ROW.search(line):
            row = [*found.groups()[:3], *_TAG.sub(" ", found[4]).split()]
            self.row(self.stream(line, found, number), row)
        elif found := _SETTINGS.search(line):
            smallest, largest, step = map(int, found.groups()[:3])
            table = self.head(line, found, number, begins=True).table
            table.sizes = sweep_length(smallest, largest, step, is_factor=found[4] == "factor")
        elif found := _RANK.search(line):
            rank, process, host, device = found.groups()
            members = self.head(line, found, number).table.members
            members.append(Member(int(rank), host, process or rank, device.strip()))
        elif found := _HEAD.search(line):
            self.head(line, found, number).columns = found[0].split()
        elif found := _PLACES.search(line):
            self.head(line, found, number).places = _PLACE.findall(found[0])
        elif found := _STARTING.search(line):
            self.head(line, found, number, begins=True).table.name = collective_name(found[1])
        elif found := _FAILED.search(line):
            rule = f"{found[1]} values were out of bounds"
            where = self.stream(line, found, number).table.where
            self.problems.append(
                Problem(where, int(found[1]), rule, "test the hardware before you use its figures", "warning")
            )
        elif found := _END.search(line):
            self.stream(line, found, number).table.complete = True
        elif found := _TEST.search(line):
            self.test = collective_name(found[1])  # a command line may be all that names the next table
        else:
            self.rest_of_row(line)

    def stream(self, line: str, found: re.Match[str], number: int) -> _Stream:
        """Return the stream of a line, by the text before the recognised part."""
        beginning = _CLOCK.sub("", line[: found.start()].partition("#")[0]).strip()
        if beginning not in self.streams:
            if len(self.streams) >= MOST_STREAMS:
                rule = f"has more than {MOST_STREAMS} different beginnings of lines"
                raise InputError(Problem("nccl-tests", beginning, rule, "the output of one test"))
            self.streams[beginning] = _Stream(beginning, self.table(number))
        return self.streams[beginning]

    def head(self, line: str, found: re.Match[str], number: int, *, begins: bool = False) -> _Stream:
        """Return the stream of a head line; a new table if the present one has begun, or is listed and ``begins``."""
        stream = self.stream(line, found, number)
        table = stream.table
        if table.rows or table.complete or (begins and (table.members or table.sizes is not None)):
            stream.table = self.table(number)
            stream.columns, stream.places = COLUMNS, (OUTSIDE, INSIDE)
            self.waiting.pop(stream.beginning, None)
        return stream

    def table(self, number: int) -> Table:
        """Create a table that begins in a line."""
        self.tables.append(Table(f"table in line {number}"))
        return self.tables[-1]

    def row(self, stream: _Stream, tokens: list[str]) -> None:
        """Store a row, or wait for the rest of it."""
        table = stream.table
        if not table.rows:
            table.name, self.test = table.name or self.test, ""
        found = _rows(tokens, stream.columns, stream.places)
        self.waiting.pop(stream.beginning, None)
        if found is None and len(self.waiting) < MOST_WAITING:
            stream.interrupted, self.waiting[stream.beginning] = tokens, stream
        if found and "cputime" in stream.columns:
            rule = "is of processor time (option -C), which says nothing of the collective's"
            self.problems.append(Problem(table.where, tokens[0], rule, "left out", "warning"))
        else:
            table.rows.extend(found or ())

    def rest_of_row(self, line: str) -> None:
        """Append a line of only figures to the interrupted row of its stream."""
        for beginning, stream in self.waiting.items():
            if line.strip().startswith(beginning):
                figures = _TAG.sub(" ", line.replace(beginning, " ", 1)).split()
                if figures and all(map(_FIGURE.fullmatch, figures)):
                    self.row(stream, [*stream.interrupted, *figures])
                    return


def _rows(tokens: list[str], columns: Sequence[str], places: Sequence[str]) -> list[Row] | None:
    """Return a line's row for each place; None if the line is incomplete."""
    size, count, dtype, *rest = tokens
    redop = "" if "redop" in columns else "none"
    if rest and not _FIGURE.fullmatch(rest[0]):
        redop = rest.pop(0)
    times = [index for index, name in enumerate(columns) if name in ("time", "cputime")]
    width = times[1] - times[0] if len(times) > 1 else FIGURES
    root = _whole(rest.pop(0)) if "root" in columns and rest else -1
    if not times or len(rest) < width * (len(times) - 1) + FIGURES:
        return None
    checks = columns[times[0] + FIGURES - 1] if len(columns) > times[0] + FIGURES - 1 else ""
    chosen = places if len(places) == len(times) else (OUTSIDE, INSIDE)
    found = []
    for index, place in zip(range(len(times)), chosen, strict=False):
        time, algbw, busbw, wrong = map(_number, rest[width * index : width * index + FIGURES])
        if time is not None and algbw is not None and busbw is not None:
            found.append(
                Row(
                    size=int(size),
                    count=int(count),
                    dtype=dtype,
                    redop=redop,
                    root=root,
                    in_place=place == INSIDE,
                    time_us=time,
                    algbw=algbw,
                    busbw=busbw,
                    wrong=None if wrong is None else int(wrong) if "wrong" in checks else 0,
                )
            )
    return found


def _number(token: str) -> float | None:
    """Parse a figure; None for N/A and numbers that are not finite."""
    value = float(token.rstrip("*")) if _FIGURE.fullmatch(token) and token != "N/A" else float("nan")
    return value if abs(value) < float("inf") else None


def _whole(token: str) -> int | None:
    return int(token) if token.removeprefix("-").isdecimal() and len(token) < 16 else None
