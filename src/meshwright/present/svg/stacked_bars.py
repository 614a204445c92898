"""Draw stacked horizontal bars as a static SVG picture in colour-blind-safe colours.

Everything is an attribute,
since viewers of notebooks strip style sheets; the paper is white in light and dark themes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from meshwright.present.svg.picture_colours import LIGHT, OKABE_ITO
from meshwright.present.svg.svg_elements import drawing, pixels, shape, shortened, text_width

COLOURS = OKABE_ITO
PAPER, INK, FAINT = LIGHT["paper"], LIGHT["ink"], LIGHT["faint"]
SIZE = 12.0
WIDTH, LABELS, VALUES, MARGIN = 760.0, 190.0, 90.0, 12.0
LEFT = MARGIN + LABELS
LENGTH = WIDTH - LEFT - VALUES - MARGIN
ROW, BAR = 22.0, 15.0
MOST_ROWS = 32


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Bars of one picture: the parts of each by name, in a unit that ``shown`` formats.

    ``limit`` is drawn as a line named ``limit_name``; ``colours`` of parts by name, where they are fixed. Of more than
    32 bars only the longest are drawn.
    """

    title: str
    bars: Sequence[tuple[str, Mapping[str, float]]]
    shown: Callable[[float], str]
    limit: float | None = None
    limit_name: str = ""
    colours: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of all parts that any bar has."""
        names = dict.fromkeys(name for _, parts in self.bars for name, value in parts.items() if value > 0)
        return tuple(names)


def stacked_bars(chart: StackedBars) -> Element:
    """Return the picture as an ``svg`` element."""
    drawn = _drawn(chart)
    longest = max((sum(parts.values()) for _, parts in drawn), default=0.0)
    scale = LENGTH / (max(longest, chart.limit or 0.0) or 1.0)
    root = drawing(chart.title, WIDTH, 0.0)
    shape(root, "rect", width="100%", height="100%", fill=PAPER)
    y = MARGIN + SIZE
    _write(root, chart.title, MARGIN, y, font_weight="bold")
    y = _legend(root, chart, y + ROW)
    for label, parts in drawn:
        _write(root, shortened(label, SIZE, LABELS - 8), LEFT - 8, y + SIZE, text_anchor="end")
        x = LEFT
        for name, value in parts.items():
            if value <= 0:
                continue
            box = shape(root, "rect", x=x, y=y, width=value * scale, height=BAR, fill=_colour(chart, name))
            shape(box, "title", f"{label}, {name}: {chart.shown(value)}")
            x += value * scale
        _write(root, chart.shown(sum(parts.values())), x + 6, y + SIZE)
        y += ROW
    if chart.limit is not None:
        x, top = LEFT + chart.limit * scale, y - ROW * len(drawn) - 4
        shape(root, "line", x1=x, x2=x, y1=top, y2=y, stroke=INK, stroke_dasharray="4 3")
        y += SIZE
        _write(root, f"{chart.limit_name} {chart.shown(chart.limit)}", x, y, text_anchor="end", fill=FAINT)
    if len(drawn) < len(chart.bars):
        y += ROW
        _write(root, f"The {len(drawn)} longest of {len(chart.bars)}.", MARGIN, y, fill=FAINT)
    height = y + MARGIN
    root.set("viewBox", f"0 0 {pixels(WIDTH)} {pixels(height)}")
    return root


def _drawn(chart: StackedBars) -> Sequence[tuple[str, Mapping[str, float]]]:
    if len(chart.bars) <= MOST_ROWS:
        return chart.bars
    order = sorted(range(len(chart.bars)), key=lambda place: -sum(chart.bars[place][1].values()))
    return [chart.bars[place] for place in sorted(order[:MOST_ROWS])]


def _legend(root: Element, chart: StackedBars, y: float) -> float:
    """Draw a box and a name for each part, on as many lines as they take; return where the bars begin."""
    x = MARGIN
    for name in chart.parts:
        width = SIZE + 6 + text_width(name, SIZE) + 18
        if x > MARGIN and x + width > WIDTH - MARGIN:
            x, y = MARGIN, y + ROW
        shape(root, "rect", x=x, y=y - SIZE + 2, width=SIZE, height=SIZE, fill=_colour(chart, name))
        _write(root, name, x + SIZE + 6, y)
        x += width
    return y + ROW / 2


def _colour(chart: StackedBars, name: str) -> str:
    return chart.colours.get(name) or COLOURS[min(chart.parts.index(name), len(COLOURS) - 1)]


def _write(root: Element, text: str, x: float, y: float, **attributes: str) -> None:
    place: dict[str, float | str] = {"x": x, "y": y, "font_size": SIZE, "fill": INK}
    shape(root, "text", text, **(place | attributes))
