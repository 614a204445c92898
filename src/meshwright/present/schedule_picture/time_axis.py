"""Map times to pixels, with breaks where a schedule is too long to be drawn whole.

All schedules of a picture share one axis. If they have more actions than may be drawn, the picture shows the beginning,
and the end of every schedule: as much time of each as the limit allows. Equal times are equally wide everywhere.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10

from meshwright.present.schedule_picture.panel import Panel

BREAK = 28.0
"""Pixels between two windows."""
HALVINGS = 40
Window = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Windows of time in order, where each begins in pixels, and how many pixels a unit of time takes."""

    windows: tuple[Window, ...]
    lefts: tuple[float, ...]
    scale: float

    @property
    def width(self) -> float:
        """Pixels of the whole axis."""
        low, high = self.windows[-1]
        return self.lefts[-1] + (high - low) * self.scale

    @property
    def breaks(self) -> list[tuple[Window, float]]:
        """Times that are left out, and the middle of their place in pixels."""
        between = [(before[1], after[0]) for before, after in pairwise(self.windows)]
        return [(gap, left - BREAK / 2) for gap, left in zip(between, self.lefts[1:], strict=True)]

    def at(self, time: float) -> float | None:
        """Pixels from the left; None for a time that is left out."""
        return next((x for x, _ in self.pieces(time, time)), None)

    def pieces(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        """Yield the drawn parts of a span of time, in pixels."""
        for (low, high), left in zip(self.windows, self.lefts, strict=True):
            first, last = max(start, low), min(end, high)
            if first < last or low <= start == end <= high:
                yield left + (first - low) * self.scale, left + (last - low) * self.scale

    def ticks(self, apart: float) -> Iterator[tuple[float, float]]:
        """Yield round times and their pixels, at least that many pixels from each other in a window."""
        step = round_step(apart / self.scale)
        for (low, high), left in zip(self.windows, self.lefts, strict=True):
            for count in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1):
                yield count * step, left + (count * step - low) * self.scale


def axis_of(windows: tuple[Window, ...], width: float) -> Axis:
    """Return the axis that shows these windows on ``width`` pixels."""
    lengths = [high - low for low, high in windows]
    scale = max(1.0, width - BREAK * (len(windows) - 1)) / sum(lengths)
    lefts = [0.0]
    for length in lengths[:-1]:
        lefts.append(lefts[-1] + length * scale + BREAK)
    return Axis(windows, tuple(lefts), scale)


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 · 10ⁿ that is at least ``least``."""
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def windows_of(panels: Sequence[Panel], most_boxes: int) -> tuple[Window, ...]:
    """Return the time windows to draw: all of the time, or the beginning and every end."""
    begin = min((p.begin for p in panels), default=0.0)
    end = max((p.end for p in panels), default=0.0)
    if end <= begin:
        return ((begin, begin + 1.0),)
    if sum(p.actions for p in panels) <= most_boxes:
        return ((begin, end),)
    low, high = 0.0, end - begin
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        few = sum(_actions_in(p, _ends(panels, begin, middle)) for p in panels) <= most_boxes
        low, high = (middle, high) if few else (low, middle)
    return _ends(panels, begin, low or high)


def _ends(panels: Sequence[Panel], begin: float, length: float) -> tuple[Window, ...]:
    """``length`` of time from the beginning and before every end; windows that meet are one."""
    windows = sorted([(begin, begin + length), *((max(begin, p.end - length), p.end) for p in panels)])
    joined = [windows[0]]
    for low, high in windows[1:]:
        if low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def _actions_in(panel: Panel, windows: Sequence[Window]) -> int:
    """Boxes that touch a window; one that touches two counts twice."""
    return sum(
        max(0, bisect_right(starts, high) - bisect_left(ends, low))
        for starts, ends in zip(panel.timeline.start, panel.timeline.end, strict=True)
        for low, high in windows
    )
