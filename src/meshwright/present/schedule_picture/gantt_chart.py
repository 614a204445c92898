"""Draw the Gantt chart: one row per pipeline rank, one box per action, idle time as the background.

A box's left and right edge are its start and end on the time axis; each box is named by its action in text form
(``2F0``), which browsers show under the pointer.
"""

from collections import defaultdict
from xml.etree.ElementTree import Element

from meshwright.present.schedule_picture.grid_and_labels import (
    HEAD,
    SMALL,
    TICKS_APART,
    chart_below_head,
    draw_grid,
    draw_ranks,
    row_at,
)
from meshwright.present.schedule_picture.layout import LEFT, Layout, label
from meshwright.present.schedule_picture.message_lines import draw_messages
from meshwright.present.schedule_picture.palette import Tone
from meshwright.present.schedule_picture.panel import Panel, Style
from meshwright.present.svg.svg_elements import amount, shape, shortened
from meshwright.schedules.action import Action

FOOT = 26.0
"""Pixels below the rows for the axis."""
SEAM = 0.7
Box = tuple[Action, float, float]


def draw_gantt(parent: Element, panel: Panel, layout: Layout, style: Style) -> float:
    """Draw the rows and the axis below them, from y = 0; return their height."""
    _head(parent, panel, layout, style.unit)
    chart = chart_below_head(parent)
    for rank in range(panel.ranks):
        for left, right in layout.axis.pieces(panel.begin, panel.end):
            place = {"x": left, "y": rank * layout.row, "width": right - left, "height": layout.box}
            shape(chart, "rect", class_="idle", **place)
    bottom = panel.ranks * layout.row
    draw_grid(chart, layout, bottom)
    if style.messages:
        draw_messages(chart, panel, layout)
    for rank in range(panel.ranks):
        _row(row_at(chart, rank * layout.row), panel, rank, layout)
    draw_ranks(chart, panel.ranks, layout.row, layout.box)
    _axis(chart, layout, bottom, style.unit)
    return HEAD + bottom + FOOT


def _head(parent: Element, panel: Panel, layout: Layout, unit: str) -> None:
    words = shape(parent, "g", class_="faint", font_size=SMALL, text_anchor="end")
    shape(words, "text", "rank", x=LEFT - 8, y=HEAD - 5)
    end = layout.axis.at(panel.end)
    if end is not None and panel.actions:
        shape(words, "text", f"ends at {amount(panel.end)} {unit}".rstrip(), x=LEFT + end, y=HEAD - 5)


def _row(row: Element, panel: Panel, rank: int, layout: Layout) -> None:
    for tone, boxes in sorted(_boxes(panel, rank, layout).items()):
        _draw_boxes(row, tone, boxes, layout)


def _boxes(panel: Panel, rank: int, layout: Layout) -> dict[Tone, list[Box]]:
    """Actions by colour, with their left and right edge to a hundredth of a pixel."""
    found: dict[Tone, list[Box]] = defaultdict(list)
    played = zip(panel.lists[rank], panel.timeline.start[rank], panel.timeline.end[rank], strict=True)
    for action, start, end in played:
        for left, right in layout.axis.pieces(float(start), float(end)):
            found[panel.tone(rank, action)].append((action, round(left, 2), round(right, 2)))
    return found


def _draw_boxes(row: Element, tone: Tone, boxes: list[Box], layout: Layout) -> None:
    """Boxes with a seam of paper around them, as thin as they are narrow, then numbers where they fit."""
    narrow = min(right - left for _, left, right in boxes)
    group = shape(row, "g", class_=f"boxes {tone.name}", stroke_width=min(SEAM, 0.12 * narrow))
    for action, left, right in boxes:
        box = shape(group, "rect", x=left, width=right - left, height=layout.box)
        shape(box, "title", str(action))
    named = [box for box in boxes if layout.fits(label(box[0]), box[2] - box[1])]
    if named:
        numbers = shape(row, "g", class_=f"numbers on-{tone.name}", font_size=layout.font)
        base = layout.box / 2 + 0.36 * layout.font
        for action, left, right in named:
            shape(numbers, "text", label(action), x=(left + right) / 2, y=base)


def _axis(chart: Element, layout: Layout, top: float, unit: str) -> None:
    """Draw the times of ticks that have room, and their unit."""
    numbers = shape(chart, "g", class_="faint numbers", font_size=SMALL)
    free = float("-inf")
    for time, left in layout.axis.ticks(TICKS_APART):
        if left >= free:
            shape(numbers, "text", amount(time), x=left, y=top + 12)
            free = left + TICKS_APART / 2
    name = shortened(f"time, {unit}" if unit else "time", SMALL, LEFT - 14)
    words = shape(chart, "g", class_="faint", font_size=SMALL, text_anchor="end")
    shape(words, "text", name, x=-14, y=top + 12)
