"""Draw lines over a common axis as a static SVG picture that follows its reader's light or dark scheme."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import floor, log2, log10
from xml.etree.ElementTree import Element

from meshwright.present.svg.picture_colours import LINES_ON_LIGHT, themed_style
from meshwright.present.svg.svg_elements import document, drawing, shape, shortened, text_width

Line = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, KEY = 430.0, 260.0, 70.0, 44.0, 50.0, 44.0
LONGEST_NAME = 320.0
STEPS = 5
SIZE = 13.0
RULES = "path{fill:none}.grid{stroke:var(--grid)}"


def _plain(value: float) -> str:
    return f"{value:,.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Lines of (x, y) points by name, from y = 0 up; names that begin with "published" are dashed.

    ``logarithmic``: x are counts, each with its tick, in powers of 2; otherwise x begins with 0. ``dots``: every point
    is marked, with its values to hover. ``shown`` formats y.
    """

    title: str
    across: str
    up: str
    lines: Mapping[str, Line]
    logarithmic: bool = False
    dots: bool = False
    shown: Callable[[float], str] = _plain


def line_chart(chart: LineChart) -> str:
    """Return the SVG document."""
    points = [point for line in chart.lines.values() for point in line]
    scale = _Scale.of(chart, points)
    names = max((text_width(name, SIZE) for name in chart.lines), default=0.0)
    legend = KEY + min(names, LONGEST_NAME) + 20
    root = drawing(chart.title, LEFT + WIDTH + legend, TOP + HEIGHT + BOTTOM)
    shape(root, "style", themed_style(RULES, {}, {}))
    shape(root, "rect", width="100%", height="100%", fill="var(--paper)")
    shape(root, "text", chart.title, x=LEFT, y=24, font_weight="600")
    _axes(root, chart, scale)
    colours = cycle(f"var(--c{number})" for number in range(len(LINES_ON_LIGHT)))
    for number, ((name, line), colour) in enumerate(zip(chart.lines.items(), colours, strict=False)):
        _line(root, chart, [scale.place(*point) for point in line], number, (name, colour))
        for x, y in line if chart.dots else ():
            left, level = scale.place(x, y)
            dot = shape(root, "circle", cx=left, cy=level, r=4, fill=colour)
            shape(dot, "title", f"{name}: {_plain(x)}, {chart.shown(y)}")
    return document(root)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Both axes; ``ticks`` are the labelled x."""

    ticks: tuple[float, ...]
    low: float
    high: float
    top: float
    logarithmic: bool

    @classmethod
    def of(cls, chart: LineChart, points: Line) -> "_Scale":
        top = 1.05 * (max((y for _, y in points), default=0.0) or 1.0)
        xs = sorted({x for x, _ in points})
        if chart.logarithmic:
            return cls(tuple(xs), log2(xs[0]), log2(xs[-1]), top, True)
        high = (xs[-1] if xs else 0.0) or 1.0
        return cls(_round_numbers(high), 0.0, high, top, False)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixels of a point."""
        along = ((log2(x) if self.logarithmic else x) - self.low) / ((self.high - self.low) or 1.0)
        return LEFT + along * WIDTH, TOP + (1 - y / self.top) * HEIGHT


def _axes(root: Element, chart: LineChart, scale: _Scale) -> None:
    for x in scale.ticks:
        left, base = scale.place(x, 0)
        shape(root, "path", class_="grid", d=f"M{left:.1f} {TOP}V{base:.1f}")
        text = f"{x:,.0f}" if scale.logarithmic else _plain(x)
        shape(root, "text", text, x=left, y=base + 18, text_anchor="middle")
    for value in _round_numbers(scale.top):
        level = TOP + (1 - value / scale.top) * HEIGHT
        shape(root, "path", class_="grid", d=f"M{LEFT} {level:.1f}h{WIDTH}")
        shape(root, "text", chart.shown(value), x=LEFT - 8, y=level + 4, text_anchor="end")
    below, middle = TOP + HEIGHT + BOTTOM - 10, TOP + HEIGHT / 2
    shape(root, "text", chart.across, x=LEFT + WIDTH / 2, y=below, text_anchor="middle")
    turned = f"translate(16,{middle}) rotate(-90)"
    shape(root, "text", chart.up, transform=turned, text_anchor="middle")


def _round_numbers(top: float) -> tuple[float, ...]:
    """Return multiples of 1, 2 or 5 times a power of ten, from 0 to ``top`` in about five steps."""
    power = 10.0 ** floor(log10(top / STEPS))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit * STEPS >= 0.75 * top)
    return tuple(step * count for count in range(int(top / step * (1 + 1e-9)) + 1))


def _line(root: Element, chart: LineChart, places: Line, number: int, look: tuple[str, str]) -> None:
    """Draw a line, and its name in the legend."""
    name, colour = look
    dashes = {"stroke_dasharray": "5 4"} if name.startswith("published") else {}
    y = TOP + 10 + 20 * number
    drawn = "L".join(f"{left:.1f} {level:.1f}" for left, level in places)
    shape(root, "path", d=f"M{drawn}", stroke=colour, stroke_width=2, **dashes)
    shape(root, "path", d=f"M{LEFT + WIDTH + 16} {y - 4}h22", stroke=colour, stroke_width=2, **dashes)
    shape(root, "text", shortened(name, SIZE, LONGEST_NAME), x=LEFT + WIDTH + KEY, y=y)
