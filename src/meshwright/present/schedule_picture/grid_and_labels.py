"""Draw grid lines at round times and rank numbers, for the chart and the curves."""

from xml.etree.ElementTree import Element

from meshwright.present.schedule_picture.layout import LEFT, Layout
from meshwright.present.svg.svg_elements import pixels, shape

SMALL = 11.0
"""Font size of what stands around rows."""
HEAD = 16.0
"""Pixels above the rows for words."""
TICKS_APART = 62.0


def chart_below_head(parent: Element) -> Element:
    """Add a group whose origin is the first row's upper left corner."""
    return shape(parent, "g", transform=f"translate({pixels(LEFT)} {pixels(HEAD)})")


def row_at(chart: Element, top: float) -> Element:
    """Add a group whose y = 0 is the upper edge of a row."""
    return shape(chart, "g", transform=f"translate(0 {pixels(top)})")


def draw_grid(chart: Element, layout: Layout, bottom: float) -> None:
    """Draw a line at every round time; dots where time is left out."""
    lines = "".join(f"M{pixels(left)} 0V{pixels(bottom)}" for _, left in layout.axis.ticks(TICKS_APART))
    shape(chart, "path", class_="grid", stroke_width=0.6, d=lines)
    breaks = "".join(f"M{pixels(middle)} 0V{pixels(bottom)}" for _, middle in layout.axis.breaks)
    if breaks:
        shape(chart, "path", class_="grid", stroke_width=1.5, stroke_dasharray="1.5 4", d=breaks)


def draw_ranks(chart: Element, ranks: int, pitch: float, height: float) -> None:
    """Draw rank numbers left of their rows; only some where rows are low."""
    size = row_font(height)
    every = next(step for step in (1, 2, 4, 8) if step * pitch >= size or step == 8)
    numbers = shape(chart, "g", class_="faint", font_size=size, text_anchor="end")
    for rank in range(0, ranks, every):
        shape(numbers, "text", str(rank), x=-8, y=rank * pitch + height / 2 + 0.36 * size)


def row_font(height: float) -> float:
    """Return the font size of a row's label."""
    return min(SMALL, max(7.0, 0.7 * height))
