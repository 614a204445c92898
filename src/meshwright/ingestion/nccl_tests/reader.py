"""Read measurements of collectives from printed output or files of nccl-tests and rccl-tests.

Supported are the tables of all_reduce_perf, all_gather_perf, reduce_scatter_perf, alltoall_perf and sendrecv_perf
(others by name) wherever they stand in a log, several in one file, with any launcher's line prefixes; the JSON of both
projects and the CSV of rccl-tests. Doubtful figures give a warning; figures that contradict each other are left out.
"""

from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import InputError, Problem, nearest
from meshwright.ingestion.nccl_tests.file_tables import tables_of_file
from meshwright.ingestion.nccl_tests.interpretation import measurements
from meshwright.ingestion.nccl_tests.printed_tables import tables_of_text
from meshwright.ingestion.nccl_tests.table import COLLECTIVES, Measurement, TableOverrides

MAX_BYTES = 2**26
HINT = "the output of all_reduce_perf or another test, or its JSON or CSV"


@dataclass(frozen=True, slots=True)
class NcclTests:
    """Measurements in the order of the file, and its problems."""

    records: tuple[Measurement, ...]
    problems: tuple[Problem, ...]


def read_nccl_tests(path: str | Path, overrides: TableOverrides | None = None) -> NcclTests:
    """Read the measurements of a file. Raises InputError if it has none."""
    reason = ""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) <= MAX_BYTES:
            return parse_nccl_tests(raw.decode("utf-8", "replace"), overrides)
        reason = f"is too large: more than {MAX_BYTES >> 20} MiB"
    except (OSError, ValueError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise InputError(Problem("nccl-tests", str(path), reason, HINT))


def parse_nccl_tests(text: str, overrides: TableOverrides | None = None) -> NcclTests:
    """Return the measurements in a text; ``overrides`` completes its tables. Raises InputError if it has none."""
    overrides = overrides or TableOverrides()
    if overrides.collective is not None and overrides.collective not in COLLECTIVES.values():
        hint = nearest(overrides.collective, COLLECTIVES.values())
        raise InputError(Problem("collective", overrides.collective, "is none of nccl-tests", hint))
    problems: list[Problem] = []
    tables = tables_of_file(text)
    if tables is None:
        tables = tables_of_text(text, problems)
    records = tuple(record for table in tables for record in measurements(table, overrides, problems))
    if not records:
        raise InputError(problems or [Problem("nccl-tests", text[:60], "has no table of measurements", HINT)])
    return NcclTests(records, tuple(problems))
