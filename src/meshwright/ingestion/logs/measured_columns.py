"""A log's measurements as columns: outcome, step time, peak memory, each with its origin."""

from collections.abc import Mapping

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.ingestion.logs.events import Cells, MemoryKind, Unit
from meshwright.ingestion.logs.summary import LogSummary, units_per_step

FROM: dict[Unit, str] = {"step": "", "token of a device": "from tokens/s, ", "sample": "from samples/s, "}
KINDS: dict[MemoryKind, str] = {
    "max allocated": "GiB, max allocated",
    "max reserved": "GiB, max reserved: with the allocator's cache",
}
"""Kinds of peaks in order of preference, and the text of their origin."""


def measured_columns(summary: LogSummary, plan_cells: Mapping[str, str]) -> Cells:
    """Return the columns; a step's work is in ``plan_cells``. A run out of memory has neither time nor peak."""
    outcome = "oom" if summary.out_of_memory else "ok"
    words = "the message of PyTorch" if summary.out_of_memory else "its steps"
    cells: Cells = {"outcome": Fact(outcome, words)}
    if plan_cells.get("outcome", outcome).lower() == "oom":
        return cells
    return cells | _time(summary, plan_cells) | _memory(summary)


def _time(summary: LogSummary, plan_cells: Mapping[str, str]) -> Cells:
    timing, work = summary.timing, units_per_step(summary.unit, plan_cells)
    if timing is None or not work:
        return {}
    low, middle, high = (
        f"{seconds * work:.6g}" for seconds in (timing.low_s, timing.median_s, timing.high_s)
    )
    origin = f"{FROM[summary.unit]}median of {timing.steps} reports; 10 to 90 %: {low} to {high} s"
    words = f"{timing.steps} reports after {timing.warm_up} of warm-up"
    return {"step_time_s": Fact(middle, words), "step_time_origin": Fact(origin, words)}


def _memory(summary: LogSummary) -> Cells:
    for kind, origin in KINDS.items():
        if kind in summary.peaks_gib:
            peak = f"{summary.peaks_gib[kind]:.6g}"
            return {"peak_memory_gib": Fact(peak, kind), "memory_origin": Fact(origin, kind)}
    return {}
