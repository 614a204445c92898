"""Find the steps of a trace as windows of time, on the clock of the device if it has work.

torch.profiler marks steps on the host (``ProfilerStep#N``), and kernels run later, so the marks are transferred: a
step begins with its first kernel, assigned by launch time (or by its own start if the launch is unknown), and ends
where the next begins. The last one, and one whose successor was not profiled, ends with its last kernel, but is no
shorter than on the host. Copies do not begin a step, because input is copied ahead. A step without kernels (profiling
often ends with one) is left out. Without marks the whole span counts as one step.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.ingestion.kineto.rank_trace import STEP, Ints, Spans, Trace

NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Windows:
    """Steps in order, disjoint or touching, in ns. ``marked`` is False if the whole span is used instead."""

    start: Ints
    end: Ints
    marked: bool

    def __len__(self) -> int:
        return len(self.start)

    def inside(self, start: Ints, end: Ints) -> Ints:
        """Return how many ns of each event lie in the windows."""
        return self._before(end) - self._before(start)

    def _before(self, time: Ints) -> Ints:
        """Return the ns of windows before a time."""
        lengths = self.end - self.start
        done = np.concatenate([[0], np.cumsum(lengths)])
        index = np.searchsorted(self.start, time, side="right") - 1
        at = np.maximum(index, 0)
        return np.where(index < 0, 0, done[at] + np.clip(time - self.start[at], 0, lengths[at]))


@dataclass(frozen=True, slots=True)
class _Marks:
    """Steps as the host marked them, in order."""

    number: Ints
    start: Ints
    end: Ints


def find_steps(trace: Trace, launched: Ints, is_kernel: NDArray[np.bool_]) -> Windows:
    """Return the steps. ``launched``: launch time of each device event, ``NEVER`` if unknown."""
    marks, work = _marks(trace), trace.device if len(trace.device) else trace.host
    first, last = marks.start, marks.end
    if len(trace.device):
        marks, first, last = _on_device(marks, work, launched, is_kernel)
    if len(first):
        return _closed(marks.number, first, last)
    return Windows(work.start.min(keepdims=True), work.end.max(keepdims=True), marked=False)


def _marks(trace: Trace) -> _Marks:
    number = np.array([_step_number(name) for name in trace.names], np.int64)[trace.annotations.name]
    rows = np.flatnonzero(number >= 0)
    rows = rows[np.argsort(trace.annotations.start[rows], kind="stable")]
    return _Marks(number[rows], trace.annotations.start[rows], trace.annotations.end[rows])


def _step_number(name: str) -> int:
    """Return N of ``ProfilerStep#N``; -1 for other names."""
    number = name.removeprefix(STEP)
    return int(number) if number != name and number.isdecimal() and len(number) < 16 else -1


def _on_device(
    marks: _Marks, work: Spans, launched: Ints, is_kernel: NDArray[np.bool_]
) -> tuple[_Marks, Ints, Ints]:
    """Return the marks of steps that launched kernels, with the start of their first kernel and their end."""
    launched = np.where(launched == NEVER, work.start, launched)
    step = np.searchsorted(marks.start, launched, side="right") - 1
    rows = np.flatnonzero(step >= 0)
    rows = rows[launched[rows] < marks.end[step[rows]]]
    first, last = np.full(len(marks.start), -NEVER - 1), np.full(len(marks.start), NEVER)
    kernels = rows[is_kernel[rows]]
    np.minimum.at(first, step[kernels], work.start[kernels])
    np.maximum.at(last, step[rows], work.end[rows])
    kept = np.flatnonzero(first != -NEVER - 1)
    marks = _Marks(marks.number[kept], marks.start[kept], marks.end[kept])
    first = np.maximum.accumulate(first[kept])
    return marks, first, np.maximum(last[kept], first + marks.end - marks.start)


def _closed(number: Ints, first: Ints, last: Ints) -> Windows:
    """Return windows that end where the next step begins, if the steps' numbers are consecutive."""
    end = last.copy()
    follows = np.diff(number) == 1
    end[:-1] = np.where(follows, first[1:], np.minimum(last[:-1], first[1:]))
    return Windows(first, end, marked=True)
