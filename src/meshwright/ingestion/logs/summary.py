"""Summarise a training log: the run's settings, its step time, its peak memory, its outcome.

The lines are read once and not kept. Every reader sees every line, so that one log may hold lines of several
frameworks (DeepSpeed under Megatron); the first reader of ``READERS`` that fills a column wins, and seconds per step
are preferred to rates. Lines that no reader knows are counted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.ingestion.logs.events import Cells, MemoryKind, Unit, number
from meshwright.ingestion.logs.iteration_series import Timing
from meshwright.ingestion.logs.lines import log_lines, pieces, plain
from meshwright.ingestion.logs.reader_state import ReaderState
from meshwright.ingestion.logs.readers import READERS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """Summary of a log. ``timing`` is in seconds per ``unit``; None if no step is left after warm-up."""

    reader: str
    unit: Unit
    timing: Timing | None
    restarts: int
    cells: Cells
    peaks_gib: dict[MemoryKind, float]
    out_of_memory: bool
    other_runs: int
    lines: int
    unread_lines: int

    @property
    def step_time_s(self) -> float | None:
        """Seconds of the median step; None if the log has rates and does not say of how much work."""
        work = units_per_step(self.unit, {column: fact.value for column, fact in self.cells.items()})
        return self.timing.median_s * work if self.timing and work else None


def units_per_step(unit: Unit, cells: Mapping[str, str]) -> float | None:
    """Return the units of a step from its sequences, tokens and devices; None if the cells do not have them."""
    if unit == "step":
        return 1.0
    batch, tokens, devices = (number(cells.get(name, "")) for name in ("global_batch", "seq_len", "devices"))
    if unit == "sample":
        return batch
    return batch * tokens / devices if batch and tokens and devices else None


def read_log_file(path: str | Path) -> LogSummary:
    """Read the log at ``path`` as a stream. Raises InputError if it cannot be read or has no step."""
    try:
        with open(path, "rb") as file:
            return read_log(log_lines(file))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(Problem("log", str(path), f"cannot be read: {reason}", "check the path")) from error


def read_log(lines: Iterable[str]) -> LogSummary:
    """Read a log from its lines with their ends, as an open file yields them. Raises InputError if it has no step."""
    reading = ReaderState(READERS)
    for line, complete in pieces(lines):
        reading.take(plain(line), complete)
    reading.close()
    if not any(reading.series.values()) and not reading.out_of_memory:
        raise InputError(_nothing_found(reading.lines))
    return _summary(reading)


def _summary(reading: ReaderState) -> LogSummary:
    cells = reading.cells()
    if reading.batch is not None:
        cells["global_batch"] = Fact(str(reading.batch), f"global batch size {reading.batch} of its steps")
    order = list(READERS)
    found = [key for key, series in reading.series.items() if series]
    found.sort(key=lambda key: (key[1] != "step", not key[2], order.index(key[0])))
    reader, unit, _ = (
        found[0] if found else (next((n for n in order if reading.settings.get(n)), ""), "step", False)
    )
    series = reading.series[found[0]] if found else None
    return LogSummary(
        reader=reader,
        unit=unit,
        timing=series.timing() if series else None,
        restarts=series.start if series else 0,
        cells=cells,
        peaks_gib=reading.peaks_gib,
        out_of_memory=reading.out_of_memory,
        other_runs=reading.other_runs,
        lines=reading.lines,
        unread_lines=reading.unread_lines,
    )


def _nothing_found(lines: int) -> Problem:
    forms = "; ".join(f"{name}: {reader.looked_for}" for name, reader in READERS.items())
    rule = "no complete line gives the time of a step, and none says that memory ran out"
    return Problem("log", f"{lines} lines", rule, f"a log with lines such as these: {forms}")
