"""Draw predicted against measured seconds as one SVG file: logarithmic axes, one colour per source, a band of ±10 %.

Colours follow the reader's light or dark scheme by CSS. Points on the same half pixel are drawn once, so that
a million runs stay a small file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

import numpy as np
from numpy.typing import NDArray

from meshwright.present.console import printable

Floats = NDArray[np.float64]
Points = Mapping[str, tuple[Floats, Floats]]

SIDE, LEFT, TOP, BOTTOM, LEGEND = 520, 76, 48, 60, 450
BAND = 0.1
MARGIN = 0.06
NAME_WIDTH = 46
MAX_SOURCES = 24
LIGHT = ("#1f6fb4", "#d1541b", "#2b8a3e", "#8e44ad", "#b8860b", "#0b8a8f", "#c2255c", "#5c6770")
DARK = ("#6cb4f0", "#ff9d6b", "#74d68a", "#cf9bea", "#f0c75e", "#5fd8dc", "#ff8fb5", "#b4bec6")
MARKS = ("circle", "square", "diamond")
PLAIN = "text{font:13px system-ui,sans-serif;fill:var(--ink)}.grid{stroke:var(--grid);fill:none}"


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
    axis, title = _axis(points), printable(title)
    sources = list(points)[:MAX_SOURCES]
    width, height = LEFT + SIDE + LEGEND, TOP + SIDE + BOTTOM
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(title)}</title>',
        f"<style>{_style()}</style>",
        f'<rect width="{width}" height="{height}" fill="var(--paper)"/>',
        f'<text x="{LEFT}" y="28" font-weight="600">{escape(title)}</text>',
        f'<g transform="translate({LEFT},{TOP})">',
        *_frame(axis),
        *(_dots(axis, i, points[name]) for i, name in enumerate(sources)),
        "</g>",
        *_legend(sources, points),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _axis(points: Points) -> Axis:
    every = [values for pair in points.values() for values in pair if len(values)]
    if not every:
        return Axis(-1.0, 1.0)
    low, high = (log10(f(float(f(v)) for v in every)) for f in (min, max))
    margin = max(MARGIN * (high - low), 0.05)
    return Axis(low - margin, high + margin)


def _style() -> str:
    def scheme(paper: str, ink: str, grid: str, band: str, colours: Sequence[str]) -> str:
        variables = {"paper": paper, "ink": ink, "grid": grid, "band": band}
        variables |= {f"c{i}": c for i, c in enumerate(colours)}
        return ":root{" + ";".join(f"--{name}:{value}" for name, value in variables.items()) + "}"

    marks = "".join(
        f".c{i}{{stroke:var(--c{i});fill:var(--c{i});stroke-opacity:.75}}" for i in range(len(LIGHT))
    )
    dark = scheme("#16191d", "#e4e7ea", "#3a4048", "#2c4a68", DARK)
    light = scheme("#ffffff", "#22262a", "#d5d9de", "#bcd8f2", LIGHT)
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}{PLAIN}{marks}"


def _frame(axis: Axis) -> list[str]:
    """Return band, diagonal, grid with its numbers, and the axes' names."""
    shift = [log10(1 + sign * BAND) / (axis.high - axis.low) * SIDE for sign in (1, -1)]
    up, down = shift
    lines = [
        f'<clipPath id="inside"><rect width="{SIDE}" height="{SIDE}"/></clipPath>',
        f'<polygon clip-path="url(#inside)" fill="var(--band)" points="0,{SIDE - up:.1f} '
        f'{SIDE},{-up:.1f} {SIDE},{-down:.1f} 0,{SIDE - down:.1f}"/>',
        f'<path class="grid" d="M0 {SIDE}L{SIDE} 0" style="stroke:var(--ink)"/>',
    ]
    for value in axis.ticks():
        place = float(axis.at(np.array([value]))[0])
        level = SIDE - place
        lines.append(
            f'<path class="grid" d="M{place:.1f} 0V{SIDE}M0 {level:.1f}H{SIDE}" stroke-opacity=".5"/>'
        )
        lines.append(f'<text x="{place:.1f}" y="{SIDE + 18}" text-anchor="middle">{value:g}</text>')
        lines.append(f'<text x="-8" y="{level + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = SIDE / 2
    lines.append(f'<rect class="grid" width="{SIDE}" height="{SIDE}" style="stroke:var(--ink)"/>')
    lines.append(f'<text x="{middle}" y="{SIDE + 42}" text-anchor="middle">measured seconds per step</text>')
    rotation = f'transform="translate(-56,{middle}) rotate(-90)" text-anchor="middle"'
    lines.append(f"<text {rotation}>predicted seconds per step</text>")
    return lines


def _dots(axis: Axis, number: int, pair: tuple[Floats, Floats]) -> str:
    """Return one path for all points of a source."""
    measured, predicted = pair
    halves = np.round(2 * np.stack([axis.at(measured), SIDE - axis.at(predicted)], 1))
    places = np.unique(halves.astype(np.int64), axis=0) / 2
    mark = _mark(number)
    drawn = "".join(f"M{x:g} {y:g}{mark}" for x, y in places.tolist())
    return f'<path class="c{number % len(LIGHT)}"{_stroke(number)} d="{drawn}"/>'


def _mark(number: int) -> str:
    """Return the shape of a point, drawn from its centre; a second round of colours gets another shape."""
    shapes = {"circle": "h0", "square": "m-2.5-2.5h5v5h-5z", "diamond": "m0-3.5l3.5 3.5l-3.5 3.5l-3.5-3.5z"}
    return shapes[MARKS[number // len(LIGHT) % len(MARKS)]]


def _stroke(number: int) -> str:
    dots = MARKS[number // len(LIGHT) % len(MARKS)] == "circle"
    return ' stroke-width="5" stroke-linecap="round"' if dots else ' stroke-width="0" fill-opacity=".75"'


def _legend(sources: Sequence[str], points: Points) -> list[str]:
    """Return the sources with their number of runs and mean error, then the meaning of band and line."""
    left = LEFT + SIDE + 24
    lines = []
    for number, name in enumerate(sources):
        y = TOP + 12 + 20 * number
        measured, predicted = points[name]
        error = float(np.abs(predicted / measured - 1).mean())
        shown = name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"
        lines.append(
            f'<path class="c{number % len(LIGHT)}"{_stroke(number)} d="M{left} {y - 4}{_mark(number)}"/>'
            f'<text x="{left + 12}" y="{y}">{escape(printable(shown) or "(no source)")}'
            f'<tspan dx="6" opacity=".7">{len(measured):,}, {error:.1%}</tspan></text>'
        )
    notes = ["n, mean |error|; line: equal; band: ±10 %"]
    if len(points) > len(sources):
        notes.insert(0, f"and {len(points) - len(sources):,} other sources, not drawn")
    if not points:
        notes = ["No run has both a prediction and a measured time."]
    first = TOP + 24 + 20 * len(sources)
    lines += [
        f'<text x="{left}" y="{first + 20 * i}" opacity=".7">{note}</text>' for i, note in enumerate(notes)
    ]
    return lines
