"""What stands in a picture, read back from its text: boxes and curves in pixels of the whole picture."""

import re
from dataclasses import dataclass
from xml.etree import ElementTree

from meshwright.present.schedule_picture import Panel, Style, schedule_svg
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import run

NAMESPACE = "{http://www.w3.org/2000/svg}"
SPLIT = {"F": 1, "B": 2, "I": 1, "W": 1}
CASES = [
    ("gpipe", 4, 8, 1),
    ("1f1b", 1, 3, 1),
    ("1f1b", 4, 8, 1),
    ("interleaved-1f1b", 4, 8, 2),
    ("interleaved-1f1b", 2, 4, 6),
    ("zb-h1", 8, 24, 1),
    ("zb-h2", 3, 5, 1),
    ("v-half", 4, 8, 2),
    ("v-min", 4, 6, 2),
]


@dataclass(frozen=True)
class Thing:
    """An element with its classes, those of the groups around it, and its place in the picture."""

    tag: str
    classes: tuple[str, ...]
    left: float
    top: float
    element: ElementTree.Element

    @property
    def text(self):
        return self.element.text or ""

    def pixels(self, name):
        return float(self.element.get(name, 0))


@dataclass(frozen=True)
class Box:
    """The box of an action."""

    name: str
    tone: str
    left: float
    right: float
    top: float
    bottom: float


def panel(name, ranks, micro_batches, chunks, comm=0.0, title=""):
    kind = SCHEDULES[name]
    lists, ways = kind.lists(ranks, micro_batches, chunks), kind.ways(ranks, chunks)
    timeline = run(lists, lambda action: SPLIT[action.kind] / chunks, comm, ways)
    return Panel(lists=lists, timeline=timeline, ways=ways, title=title)


def drawn(shown, title="a schedule", **style):
    return schedule_svg(
        shown.lists, shown.timeline, shown.ways, title=title, kept=shown.kept, style=Style(**style)
    )


def things(svg):
    """Every element, from the first to the last."""
    return list(_things(ElementTree.fromstring(svg), (), 0.0, 0.0))


def _things(element, classes, left, top):
    shift = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", "translate(0 0)"))
    left, top = left + float(shift[1]), top + float(shift[2])
    classes = (*classes, *element.get("class", "").split())
    place = (left + float(element.get("x", 0)), top + float(element.get("y", 0)))
    if element.get("width") != "100%":
        yield Thing(element.tag.removeprefix(NAMESPACE), classes, *place, element)
    for child in element:
        yield from _things(child, classes, left, top)


def boxes(svg):
    """The boxes of actions in rows from top to bottom, each from left to right."""
    rows = {}
    for thing in things(svg):
        title = thing.element.find(f"{NAMESPACE}title")
        if thing.tag == "rect" and title is not None:
            right, bottom = thing.left + thing.pixels("width"), thing.top + thing.pixels("height")
            box = Box(title.text, thing.classes[-1], thing.left, right, thing.top, bottom)
            rows.setdefault(round(thing.top, 2), []).append(box)
    return [sorted(rows[top], key=lambda box: (box.left, box.right)) for top in sorted(rows)]


def words(svg):
    """All text that a reader sees."""
    return [thing.text for thing in things(svg) if thing.tag == "text"]
