"""What a log measured, as columns: outcome, time of a step, peak of memory, each with how it came about."""

from collections.abc import Mapping

from meshwright.import_.foreign import Fact
from meshwright.import_.logs.events import Cells, MemoryKind, Unit
from meshwright.import_.logs.summary import LogSummary, work_of

FROM: dict[Unit, str] = {"step": "", "token of a device": "from tokens/s, ", "sample": "from samples/s, "}
KINDS: dict[MemoryKind, str] = {
    "max allocated": "GiB, max allocated",
    "max reserved": "GiB, max reserved: with the allocator's cache",
}
"""Peaks in the order of preference, and what is written of them."""


def measured_cells(summary: LogSummary, known: Mapping[str, str]) -> Cells:
    """The columns; ``known`` says how much work a step is. A run that is out of memory has neither time nor peak."""
    outcome = "oom" if summary.out_of_memory else "ok"
    words = "the message of PyTorch" if summary.out_of_memory else "its steps"
    cells: Cells = {"outcome": Fact(outcome, words)}
    if known.get("outcome", outcome).lower() == "oom":
        return cells
    return cells | _time(summary, known) | _memory(summary)


def _time(summary: LogSummary, known: Mapping[str, str]) -> Cells:
    timing, work = summary.timing, work_of(summary.unit, known)
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
