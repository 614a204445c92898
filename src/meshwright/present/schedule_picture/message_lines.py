"""Draw messages between ranks: a thin line from the end of a pass to the start of the next.

It runs behind the boxes of ranks between them, and is left out where one of its ends is. More messages than a reader
can follow are not drawn at all.
"""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from meshwright.present.schedule_picture.layout import Layout
from meshwright.present.schedule_picture.panel import Panel
from meshwright.present.svg.svg_elements import pixels, shape
from meshwright.schedules.action import Action
from meshwright.schedules.dependencies import Key, dependency_key, sources

MAX_MESSAGES = 700
SENT = ("F", "B", "I")
Message = tuple[int, float, int, float]
"""Rank and time of the end of a pass, rank and time of the start of the one that needs it."""


def messages(panel: Panel) -> Iterator[Message]:
    """Every message between ranks, in the order of the lists of the ranks that receive them."""
    sent: dict[Key, tuple[int, float]] = {
        dependency_key(action): (rank, end) for rank, action, _, end in _passes(panel)
    }
    for rank, action, start, _ in _passes(panel):
        for key in sources(action, panel.ways):
            if key in sent and sent[key][0] != rank:
                yield (*sent[key], rank, start)


def draw_messages(chart: Element, panel: Panel, layout: Layout) -> None:
    """Draw a line with a tip for every message, behind the boxes."""
    lines, tips = [], []
    for source, end, target, start in messages(panel):
        left, right = layout.axis.at(end), layout.axis.at(start)
        if left is None or right is None:
            continue
        down = target > source
        begin = source * layout.row + (layout.box if down else 0.0)
        finish = target * layout.row + (0.0 if down else layout.box)
        lines.append(f"M{pixels(left)} {pixels(begin)}L{pixels(right)} {pixels(finish)}")
        back = -4.0 if down else 4.0
        tips.append(f"M{pixels(right)} {pixels(finish)}l-2 {pixels(back)}h4z")
    shape(chart, "path", class_="message", stroke_width=0.8, stroke_opacity=0.7, d="".join(lines))
    shape(chart, "path", class_="tip", d="".join(tips))


def _passes(panel: Panel) -> Iterator[tuple[int, Action, float, float]]:
    """Rank, action, start and end of all passes whose results others need."""
    played = zip(panel.lists, panel.timeline.start, panel.timeline.end, strict=True)
    for rank, rows in enumerate(played):
        for action, start, end in zip(*rows, strict=True):
            if action.kind in SENT and action.stage is not None and action.micro_batch is not None:
                yield rank, action, float(start), float(end)
