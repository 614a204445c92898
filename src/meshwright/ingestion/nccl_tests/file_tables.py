"""Read the files of nccl-tests and rccl-tests: three forms of JSON, and CSV.

- ``-J FILE.json`` of nccl-tests (src/util.cu at a0b82b2, file version 3): one object with ``config`` and ``results``.
  The list of devices has one entry for each process. Its copy of the environment is not read.
- ``--json`` as proposed in NVIDIA/nccl-tests pull request 318: one object in a line of the output, by size.
- ``-x FILE -Z json`` of rccl-tests (projects/rccl-tests/src/common.cu of ROCm/rocm-systems at 032d8f6): a list of
  records, or one record in a line in releases of 2024. Its ranks per node are the processes of the
  communicator, so it does not record nodes.
- ``-x FILE -Z csv``: the same. With MPI its head lacks the column ``nodes`` that its rows have.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.ingestion.nccl_tests.table import ELEMENT_BYTES, Row, Table, collective_name, sweep_length

PROPOSED = '{"identifier": "nccl-tests'
CSV_COLUMNS: Mapping[str, str] = {
    "collective": "name",
    "ranks": "ranks",
    "rankspernode": "ranksPerNode",
    "gpusperrank": "gpusPerRank",
    "inplace": "inPlace",
    "algbw": "algBw",
    "busbw": "busBw",
    "#wrong": "wrong",
}
"""Columns of the CSV, mapped to the names of the JSON records."""


def tables_of_file(text: str) -> list[Table] | None:
    """Return the tables of a file in one of the forms; None if it has another form.

    Raises InputError for damaged ones.
    """
    start = text.lstrip("\ufeff \t\r\n")
    if PROPOSED in text:
        return [_proposed(_json(text[text.index(PROPOSED) :]))]
    if start.startswith("{") and '"results"' in start:
        return [_nccl(_json(start))]
    if start.startswith("[") and '"busBw"' in start:
        return _rccl(_listed(_json(start)))
    if start.startswith("{") and '"busBw"' in start:
        return _rccl(_json(line) for line in start.splitlines() if line.strip())
    first = start.partition("\n")[0].lower()
    if "busbw" in first and "collective" in first and "," in first:
        return _rccl(_csv(start))
    return None


def _json(text: str) -> Any:
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)[0]
    except (ValueError, RecursionError) as error:
        rule = f"cannot be read as JSON: {error}"
        raise InputError(Problem("nccl-tests", text[:60], rule, "the whole file")) from None


def _csv(text: str) -> Iterator[Mapping[str, str]]:
    lines = csv.reader(text.splitlines(), skipinitialspace=True)
    head = [CSV_COLUMNS.get(name.strip().lower(), name.strip()) for name in next(lines)]
    try:
        for line in lines:
            columns = head
            if len(line) == len(head) + 1 and "ranks" in head:
                at = head.index("ranks")
                columns = [*head[:at], "nodes", *head[at:]]
            yield dict(zip(columns, line, strict=False))
    except csv.Error as error:
        raise InputError(
            Problem("nccl-tests", "", f"cannot be read as CSV: {error}", "quote cells that hold commas")
        ) from None


def _nccl(data: Any) -> Table:
    """Read the JSON of nccl-tests itself."""
    table, config = Table("results"), _mapping(_mapping(data).get("config"))
    arguments = _listed(_mapping(data).get("args"))
    table.name = collective_name(str(arguments[0])) if arguments else ""
    devices = len(_listed(config.get("devices")))
    each = (_whole(config.get("nthreads")) or 1) * (_whole(config.get("ngpus")) or 1)
    table.processes, table.ranks = devices or None, devices * each or None
    smallest, largest = _whole(config.get("minimum_bytes")), _whole(config.get("maximum_bytes"))
    factor = _whole(config.get("step_factor"))
    step = factor or _whole(config.get("step_bytes"))
    if smallest and largest and step:
        table.sizes = sweep_length(smallest, largest, step, is_factor=factor is not None)
    table.complete = "end_time" in _mapping(data)
    for entry in map(_mapping, _listed(_mapping(data).get("results"))):
        for place in ("out_of_place", "in_place"):
            figures = _mapping(entry.get(place))
            row = {**entry, "inPlace": place == "in_place", "time": figures.get("time")}
            row |= {
                "algBw": figures.get("alg_bw"),
                "busBw": figures.get("bus_bw"),
                "wrong": figures.get("nwrong"),
            }
            table.rows.extend(_row(row))
    return table


def _proposed(data: Any) -> Table:
    """Read the JSON of the pull request: a list of objects with sizes as keys."""
    table = Table("benchmark")
    for part in map(_mapping, _listed(_mapping(data).get("benchmark"))):
        for size, entry in ((size, _mapping(entry)) for size, entry in part.items()):
            for place in ("oop", "ip"):
                names = {"time": "time", "algBw": "algbw", "busBw": "busbw", "wrong": "error"}
                row = {ours: entry.get(f"{place}_{theirs}") for ours, theirs in names.items()}
                table.rows.extend(_row({**entry, **row, "size": size, "inPlace": place == "ip"}))
    return table


def _rccl(records: Iterable[Any]) -> list[Table]:
    """Return the tables of records; records of one test on equally many devices form one table."""
    tables: dict[tuple[str, int], Table] = {}
    for number, record in enumerate(map(_mapping, records), start=1):
        processes = _whole(record.get("ranksPerNode"))
        ranks = (processes or 1) * (_whole(record.get("gpusPerRank")) or _whole(record.get("gpus")) or 0)
        name = collective_name(str(record.get("name", "")).strip('" '))
        table = tables.setdefault((name, ranks), Table(f"record {number}", name, ranks=ranks or None))
        table.processes = processes or 1
        table.rows.extend(_row({**record, "wrong": record.get("wrong", record.get("#wrong"))}))
    return list(tables.values())


def _row(entry: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a row if its figures are complete."""
    size = _whole(entry.get("size"))
    time, algbw, busbw = (_number(entry.get(key)) for key in ("time", "algBw", "busBw"))
    dtype = str(entry.get("type", "")).strip('" ')
    if size is not None and time is not None and algbw is not None and busbw is not None:
        wrong = _number(entry.get("wrong"))
        yield Row(
            size=size,
            count=_whole(entry.get("count")),
            dtype=dtype if dtype in ELEMENT_BYTES else "",
            redop=str(entry.get("redop") or "").strip('" '),
            root=_whole(entry.get("root")),
            in_place=entry.get("inPlace") in (True, 1, "1"),
            time_us=time,
            algbw=algbw,
            busbw=busbw,
            wrong=None if wrong is None else int(wrong),
        )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: object) -> float | None:
    """Return a finite number, also from text; None for N/A and anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value.strip('" ') if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**62 else None
