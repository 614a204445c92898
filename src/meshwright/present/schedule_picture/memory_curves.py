"""Draw the memory of each rank below the chart: one curve per rank, on one scale, with its peak."""

from collections.abc import Iterator
from itertools import pairwise
from xml.etree.ElementTree import Element

from meshwright.present.schedule_picture.curve_data import Curve
from meshwright.present.schedule_picture.grid_and_labels import (
    HEAD,
    SMALL,
    chart_below_head,
    draw_grid,
    draw_ranks,
    row_at,
    row_font,
)
from meshwright.present.schedule_picture.layout import LEFT, Layout
from meshwright.present.schedule_picture.panel import Panel
from meshwright.present.schedule_picture.time_axis import Axis
from meshwright.present.svg.svg_elements import amount, pixels, shape, shortened

EDGE, SPOT = 1.2, 2.2
Corner = tuple[float, float]


def draw_curves(parent: Element, panel: Panel, layout: Layout, most: float) -> float:
    """Draw the curves from y = 0 with ``most`` as the top; return their height."""
    words = shape(parent, "g", class_="faint", font_size=SMALL)
    shape(words, "text", shortened(panel.held_words, SMALL, layout.axis.width), x=LEFT, y=HEAD - 5)
    shape(words, "text", "peak", x=LEFT + layout.axis.width + 10, y=HEAD - 5)
    chart = chart_below_head(parent)
    bottom = panel.ranks * layout.strip
    draw_grid(chart, layout, bottom)
    for rank, curve in enumerate(panel.curves):
        _draw_curve(row_at(chart, rank * layout.strip), panel, curve, layout, layout.curve / (most or 1.0))
    draw_ranks(chart, panel.ranks, layout.strip, layout.curve)
    return HEAD + bottom


def _draw_curve(strip: Element, panel: Panel, curve: Curve, layout: Layout, scale: float) -> None:
    """Area and edge of one rank, its peak, and a spot where that is reached first."""
    base = layout.curve
    for corners in _corners(panel, curve, layout.axis):
        start = f"M{pixels(corners[0][0])} {pixels(base)}"
        line = "".join(f"H{pixels(x)}V{pixels(base - held * scale)}" for x, held in corners)
        shape(strip, "path", class_="area", d=f"{start}{line}V{pixels(base)}z")
        shape(strip, "path", class_="edge", stroke_width=min(EDGE, 0.08 * base), d=start + line)
    place = layout.axis.at(curve.peak_time)
    if place is not None and curve.peak:
        spot = {"cx": place, "cy": base - curve.peak * scale, "r": min(SPOT, 0.2 * base)}
        shape(strip, "circle", class_="tip", **spot)
    size = row_font(base)
    edge = {"x": layout.axis.width + 10, "y": base / 2 + 0.36 * size}
    shape(strip, "text", amount(round(curve.peak, 2)), class_="ink peak", font_size=size, **edge)


def _corners(panel: Panel, curve: Curve, axis: Axis) -> Iterator[list[Corner]]:
    """For every window, from left to right: a place, and the amount from there on."""
    times = pairwise((panel.begin, *curve.times, panel.end))
    steps = [(*span, held) for span, held in zip(times, (0.0, *curve.held), strict=True)]
    for (low, high), left in zip(axis.windows, axis.lefts, strict=True):
        seen = [
            (max(start, low), held) for start, end, held in steps if start < high and max(start, low) < end
        ]
        if seen:
            corners = [(left + (start - low) * axis.scale, held) for start, held in seen]
            yield [*corners, (left + (min(high, panel.end) - low) * axis.scale, seen[-1][1])]
