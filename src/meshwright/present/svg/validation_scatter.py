"""Draw predicted against measured seconds as one SVG file: logarithmic axes, one colour per source, a band of ±10 %.

Colours follow the reader's light or dark scheme. Points on the same half pixel are drawn once, so that a million runs
stay a small file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray

from meshwright.present.svg.picture_colours import LINES_ON_LIGHT, themed_style
from meshwright.present.svg.svg_elements import document, drawing, one_line, shape

Floats = NDArray[np.float64]
Points = Mapping[str, tuple[Floats, Floats]]

SIDE, LEFT, TOP, BOTTOM, LEGEND = 520, 76, 48, 60, 450
BAND = 0.1
MARGIN = 0.06
NAME_WIDTH = 46
MAX_SOURCES = 24
COLOURS = len(LINES_ON_LIGHT)
MARKS = ("circle", "square", "diamond")
RULES = ".grid{stroke:var(--grid);fill:none}" + "".join(
    f".c{i}{{stroke:var(--c{i});fill:var(--c{i});stroke-opacity:.75}}" for i in range(COLOURS)
)


@dataclass(frozen=True, slots=True)
class Axis:
    """Both axes: from ``low`` to ``high`` in powers of ten."""

    low: float
    high: float

    def at(self, seconds: Floats) -> Floats:
        """Return pixels from the origin."""
        return (np.log10(seconds) - self.low) / (self.high - self.low) * SIDE

    def ticks(self) -> list[float]:
        """Return round numbers inside: 1, 2 and 5 of each decade, or decades only if there are many."""
        decades = range(floor(self.low), ceil(self.high) + 1)
        steps = (1, 2, 5) if self.high - self.low < 4 else (1,)
        stride = max(1, ceil(len(decades) / 12))
        values = [step * 10.0**d for d in decades[::stride] for step in steps]
        return [value for value in values if self.low <= log10(value) <= self.high]


def scatter(points: Points, title: str) -> str:
    """Return the SVG document. ``points`` holds measured and predicted seconds by source; all are positive."""
    axis, sources = _axis(points), list(points)[:MAX_SOURCES]
    root = drawing(title, LEFT + SIDE + LEGEND, TOP + SIDE + BOTTOM)
    shape(root, "style", themed_style(RULES, {"band": "#bcd8f2"}, {"band": "#2c4a68"}))
    shape(root, "rect", width="100%", height="100%", fill="var(--paper)")
    shape(root, "text", title, x=LEFT, y=28, font_weight="600")
    plot = shape(root, "g", transform=f"translate({LEFT},{TOP})")
    _frame(plot, axis)
    for number, name in enumerate(sources):
        shape(plot, "path", d=_dots(axis, number, points[name]), **_look(number))
    _legend(root, sources, points)
    return document(root)


def _axis(points: Points) -> Axis:
    every = [values for pair in points.values() for values in pair if len(values)]
    if not every:
        return Axis(-1.0, 1.0)
    low, high = (log10(f(float(f(v)) for v in every)) for f in (min, max))
    margin = max(MARGIN * (high - low), 0.05)
    return Axis(low - margin, high + margin)


def _frame(plot: Element, axis: Axis) -> None:
    """Draw band, diagonal, grid with its numbers, and the axes' names."""
    up, down = (log10(1 + sign * BAND) / (axis.high - axis.low) * SIDE for sign in (1, -1))
    inside = SubElement(plot, "clipPath", {"id": "inside"})
    shape(inside, "rect", width=SIDE, height=SIDE)
    corners = f"0,{SIDE - up:.1f} {SIDE},{-up:.1f} {SIDE},{-down:.1f} 0,{SIDE - down:.1f}"
    shape(plot, "polygon", clip_path="url(#inside)", fill="var(--band)", points=corners)
    shape(plot, "path", class_="grid", d=f"M0 {SIDE}L{SIDE} 0", style="stroke:var(--ink)")
    for value in axis.ticks():
        place = float(axis.at(np.array([value]))[0])
        level = SIDE - place
        shape(
            plot, "path", class_="grid", d=f"M{place:.1f} 0V{SIDE}M0 {level:.1f}H{SIDE}", stroke_opacity=".5"
        )
        shape(plot, "text", f"{value:g}", x=place, y=SIDE + 18, text_anchor="middle")
        shape(plot, "text", f"{value:g}", x=-8, y=level + 4, text_anchor="end")
    middle = SIDE / 2
    shape(plot, "rect", class_="grid", width=SIDE, height=SIDE, style="stroke:var(--ink)")
    shape(plot, "text", "measured seconds per step", x=middle, y=SIDE + 42, text_anchor="middle")
    turned = f"translate(-56,{middle}) rotate(-90)"
    shape(plot, "text", "predicted seconds per step", transform=turned, text_anchor="middle")


def _dots(axis: Axis, number: int, pair: tuple[Floats, Floats]) -> str:
    """Return the path of all points of a source."""
    measured, predicted = pair
    halves = np.round(2 * np.stack([axis.at(measured), SIDE - axis.at(predicted)], 1))
    places = np.unique(halves.astype(np.int64), axis=0) / 2
    mark = _mark(number)
    return "".join(f"M{x:g} {y:g}{mark}" for x, y in places.tolist())


def _mark(number: int) -> str:
    """Return the shape of a point, drawn from its centre; a second round of colours gets another shape."""
    shapes = {"circle": "h0", "square": "m-2.5-2.5h5v5h-5z", "diamond": "m0-3.5l3.5 3.5l-3.5 3.5l-3.5-3.5z"}
    return shapes[MARKS[number // COLOURS % len(MARKS)]]


def _look(number: int) -> dict[str, str]:
    """Return the colour and stroke of a source's points."""
    colour = {"class_": f"c{number % COLOURS}"}
    if MARKS[number // COLOURS % len(MARKS)] == "circle":
        return colour | {"stroke_width": "5", "stroke_linecap": "round"}
    return colour | {"stroke_width": "0", "fill_opacity": ".75"}


def _legend(root: Element, sources: Sequence[str], points: Points) -> None:
    """Draw the sources with their number of runs and mean error, then the meaning of band and line."""
    left = LEFT + SIDE + 24
    for number, name in enumerate(sources):
        y = TOP + 12 + 20 * number
        measured, predicted = points[name]
        error = float(np.abs(predicted / measured - 1).mean())
        shown = name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
        shape(root, "path", d=f"M{left} {y - 4}{_mark(number)}", **_look(number))
        line = shape(root, "text", one_line(shown) or "(no source)", x=left + 12, y=y)
        shape(line, "tspan", f"{len(measured):,}, {error:.1%}", dx="6", opacity=".7")
    notes = ["n, mean |error|; line: equal; band: ±10 %"]
    if len(points) > len(sources):
        notes.insert(0, f"and {len(points) - len(sources):,} other sources, not drawn")
    if not points:
        notes = ["No run has both a prediction and a measured time."]
    first = TOP + 24 + 20 * len(sources)
    for i, note in enumerate(notes):
        shape(root, "text", note, x=left, y=first + 20 * i, opacity=".7")
