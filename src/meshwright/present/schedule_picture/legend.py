"""Draw the legend: a colour for every kind of action that occurs, and idle time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from meshwright.present.schedule_picture.layout import LEFT, Layout
from meshwright.present.schedule_picture.palette import GREY, OTHER, PAINTS, Tone
from meshwright.present.schedule_picture.panel import Panel, Style
from meshwright.present.svg.svg_elements import shape, text_width

FONT, MARK_FONT = 11.0, 9.0
SWATCH, HEIGHT = 20.0, 14.0
LINE, APART = 20.0, 14.0
MANY_CHUNKS = 4
WAYS = "↓↑"


@dataclass(frozen=True, slots=True)
class Entry:
    """Words, and before them colours: the name of each, and what is written on it."""

    words: str
    swatches: tuple[tuple[str, str], ...] = ()

    @property
    def width(self) -> float:
        """Pixels of the entry."""
        return len(self.swatches) * (SWATCH + 1) + 5 + text_width(self.words, FONT)


def draw_legend(parent: Element, panels: Sequence[Panel], layout: Layout, style: Style) -> float:
    """Draw the legend from y = 0, in as many lines as it takes; return its height."""
    tones = {tone for panel in panels for tone in panel.tones}
    kinds = {kind for panel in panels for kind in panel.kinds}
    entries = [*colours(tones, kinds), *explanations(tones, layout.numbers, style.messages)]
    x, y = LEFT, 0.0
    for entry in entries:
        if x > LEFT and x + entry.width > LEFT + layout.axis.width:
            x, y = LEFT, y + LINE
        _draw(parent, entry, x, y)
        x += entry.width + APART
    return y + LINE


def colours(tones: set[Tone], kinds: set[str]) -> Iterator[Entry]:
    """Yield an entry for every kind of action in ``kinds``, and one for idle time."""
    for kind, paint in {**PAINTS, OTHER: GREY}.items():
        shades = [tone for tone in sorted(tones) if tone.kind == kind and _is_shown(tone)]
        words = ", ".join(sorted(kinds - set(PAINTS))) if kind == OTHER else f"{kind} {paint.words}"
        if shades:
            yield Entry(words, tuple((shade.name, _mark(shade)) for shade in shades))
    yield Entry("idle", (("idle", ""),))


def explanations(tones: set[Tone], numbers: bool, messages: bool) -> Iterator[Entry]:
    """Words on what is written in boxes and in the legend, and on lines."""
    if numbers:
        yield Entry("numbers in boxes: micro-batches")
    if messages:
        yield Entry("lines: messages, to the pass that needs them")
    if any(tone.chunks > 1 for tone in tones):
        yield Entry("numbers in this legend: chunks of a rank")
    if any(tone.ways > 1 for tone in tones):
        yield Entry(f"{WAYS[0]} first way through the model, {WAYS[1]} second")


def _is_shown(tone: Tone) -> bool:
    """Of many chunks the first two and the last."""
    return tone.chunks <= MANY_CHUNKS or tone.chunk in (0, 1, tone.chunks - 1)


def _mark(tone: Tone) -> str:
    way = WAYS[min(tone.way, 1)] if tone.ways > 1 else ""
    return way + (str(tone.chunk) if tone.chunks > 1 else "")


def _draw(parent: Element, entry: Entry, x: float, y: float) -> None:
    for name, mark in entry.swatches:
        shape(parent, "rect", class_=name, x=x, y=y, width=SWATCH, height=HEIGHT)
        if mark:
            place = {"x": x + SWATCH / 2, "y": y + HEIGHT / 2 + 0.36 * MARK_FONT}
            shape(parent, "text", mark, class_=f"numbers on-{name}", font_size=MARK_FONT, **place)
        x += SWATCH + 1
    gap = 5.0 if entry.swatches else 0.0
    words = shape(parent, "g", class_="ink", font_size=FONT)
    shape(words, "text", entry.words, x=x + gap, y=y + HEIGHT / 2 + 0.36 * FONT)
