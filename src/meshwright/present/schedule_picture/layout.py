"""Compute the size of a picture from its longest schedule and the number of ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from meshwright.present.schedule_picture.panel import Panel, Style
from meshwright.present.schedule_picture.time_axis import Axis, axis_of, windows_of
from meshwright.present.svg.svg_elements import WIDE
from meshwright.schedules.action import Action

LEFT, RIGHT = 70.0, 64.0
"""Pixels next to the axis: numbers of ranks, and peaks."""
BOX_WIDTH = 22.0
"""What a box of middle length wants."""
WIDTH = (640.0, 1200.0)
ROWS, ROW = 420.0, (9.0, 27.0)
CURVES, CURVE = 260.0, (8.0, 40.0)
"""Pixels that all of them want together, in a picture of one schedule; the least and the most of one."""
MESSAGE_GAP = 8.0
FONT = (6.0, 11.0)
MARGIN = 0.35
"""Margin of a number, in font sizes."""
FITTING = 0.1
"""The part of the boxes that may be too narrow for their numbers before all numbers get smaller."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Pixels: of time, from row to row and of a box, from curve to curve and of a curve, and of the numbers' font.

    ``numbers``: some box has room for its number.
    """

    axis: Axis
    row: float
    box: float
    strip: float
    curve: float
    font: float
    numbers: bool

    @property
    def width(self) -> float:
        """Pixels of the whole picture."""
        return LEFT + self.axis.width + RIGHT

    def fits(self, label: str, width: float) -> bool:
        """Return true if a box of so many pixels has room for its number."""
        return width >= _room(label, self.font) - 0.01


def layout_of(panels: Sequence[Panel], style: Style) -> Layout:
    """Return the layout of a picture of ``panels``."""
    windows = windows_of(panels, style.max_boxes)
    lengths = [length for _, length in _lengths(panels)]
    natural = BOX_WIDTH * sum(high - low for low, high in windows) / median(lengths) if lengths else 0.0
    axis = axis_of(windows, style.width - LEFT - RIGHT if style.width else _between(natural, WIDTH))
    share = sqrt(len(panels)) / max(1, sum(p.ranks for p in panels))
    row, strip = _between(ROWS * share, ROW), _between(CURVES * share, CURVE)
    gap = MESSAGE_GAP if style.messages and row > 2 * MESSAGE_GAP else max(1.0, 0.12 * row)
    largest = min(FONT[1], 0.65 * (row - gap))
    sizes = _sizes(panels, axis.scale)
    font = _between(sizes[int(FITTING * len(sizes))], (FONT[0], max(FONT[0], largest)))
    curve = strip - max(1.0, 0.15 * strip)
    return Layout(axis, row, row - gap, strip, curve, font, numbers=sizes[-1] >= font)


def label(action: Action) -> str:
    """Return the text on a box."""
    return action.kind if action.micro_batch is None else str(action.micro_batch)


def _lengths(panels: Sequence[Panel]) -> Iterator[tuple[Action, float]]:
    """All actions that take time, and how much."""
    for panel in panels:
        for played in zip(panel.lists, panel.timeline.start, panel.timeline.end, strict=True):
            for action, start, end in zip(*played, strict=True):
                if end > start:
                    yield action, float(end - start)


def _sizes(panels: Sequence[Panel], scale: float) -> list[float]:
    """Return the font sizes at which each box has just room for its number, in ascending order."""
    sizes = (length * scale / _room(label(action), 1.0) for action, length in _lengths(panels))
    return sorted(sizes) or [0.0]


def _room(text: str, size: float) -> float:
    return size * (WIDE * len(text) + MARGIN)


def _between(value: float, limits: tuple[float, float]) -> float:
    return min(limits[1], max(limits[0], value))
