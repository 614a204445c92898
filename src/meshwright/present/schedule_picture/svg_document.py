"""Draw schedules as one SVG file: chart, time axis, memory of every rank, legend and notes.

Nothing in the file comes from elsewhere and nothing in it runs. Equal schedules give equal files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from textwrap import wrap
from xml.etree.ElementTree import Element, indent, tostring

from meshwright.present.schedule_picture.gantt_chart import draw_gantt
from meshwright.present.schedule_picture.layout import LEFT, RIGHT, Layout, layout_of
from meshwright.present.schedule_picture.legend import draw_legend
from meshwright.present.schedule_picture.memory_curves import draw_curves
from meshwright.present.schedule_picture.message_lines import MAX_MESSAGES, messages
from meshwright.present.schedule_picture.panel import Panel, Style
from meshwright.present.schedule_picture.style_sheet import ROOT, style_sheet
from meshwright.present.schedule_picture.time_axis import Axis
from meshwright.present.svg.svg_elements import MEAN, amount, one_line, pixels, shape, shortened
from meshwright.schedules.action import ActionLists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.timeline import Timeline

PLAIN = Style()
TITLE, HEADING, TEXT = 17.0, 13.0, 12.0
"""Sizes of fonts."""
BOLD = 1.1
"""How much wider bold letters are."""
MARGIN, GAP = 14.0, 8.0
LINES = 3
"""The most lines of a subtitle."""


def schedule_svg(
    lists: ActionLists,
    timeline: Timeline,
    ways: StageChains,
    *,
    title: str,
    subtitle: str = "",
    kept: float = 0.5,
    style: Style = PLAIN,
) -> str:
    """One schedule as an SVG file; ``Panel`` says what the arguments mean."""
    panel = Panel(lists=lists, timeline=timeline, ways=ways, kept=kept)
    return schedules_svg([panel], title=title, subtitle=subtitle, style=style)


def schedules_svg(panels: Sequence[Panel], *, title: str, subtitle: str = "", style: Style = PLAIN) -> str:
    """Schedules one below the other, on one time axis and with memory to one scale, as an SVG file."""
    sent = sum(1 for panel in panels for _ in messages(panel)) if style.messages else 0
    style = replace(style, messages=style.messages and sent <= MAX_MESSAGES)
    page = _Page(_root(panels, title, style), layout_of(panels, style))
    page.write(title, "ink", TITLE)
    page.write_lines(subtitle, "faint")
    for note in notes(panels, page.layout.axis, sent):
        page.write_lines(note, "ink")
    page.y += 1.5 * GAP
    page.y += draw_legend(page.part(), panels, page.layout, style)
    most = max((curve.peak for panel in panels for curve in panel.curves), default=0.0)
    for panel in panels:
        _draw_panel(page, panel, style, most)
    return page.finished()


@dataclass
class _Page:
    """The picture so far, and where the next thing goes."""

    root: Element
    layout: Layout
    y: float = MARGIN

    def part(self) -> Element:
        """Add a group whose y = 0 is at the current height."""
        return shape(self.root, "g", transform=f"translate(0 {pixels(self.y)})")

    def write(self, text: str, name: str, size: float) -> None:
        """Write a line of text, cut to the width; larger ones are headings."""
        self.y += 1.4 * size
        weight = "normal" if size == TEXT else "bold"
        shown = shortened(text, size * (1 if size == TEXT else BOLD), self.layout.axis.width + RIGHT)
        shape(self.root, "text", shown, class_=name, font_size=size, font_weight=weight, x=LEFT, y=self.y)

    def write_lines(self, text: str, name: str) -> None:
        """Write a few lines of text, the rest cut."""
        most = int(self.layout.axis.width / (MEAN * TEXT))
        for line in wrap(one_line(text), most, max_lines=LINES, placeholder=" …"):
            self.write(line, name, TEXT)

    def finished(self) -> str:
        """Return the file."""
        width, height = str(ceil(self.layout.width)), str(ceil(self.y + MARGIN))
        self.root.attrib |= {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"}
        indent(self.root, space="")
        return tostring(self.root, encoding="unicode") + "\n"


def _root(panels: Sequence[Panel], title: str, style: Style) -> Element:
    """Return the picture's head: description, style sheet, background."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": ROOT, "role": "img"})
    shape(root, "title", title)
    shape(root, "desc", " ".join(map(description, panels)))
    tones = {tone for panel in panels for tone in panel.tones}
    shape(root, "style").text = "\n" + style_sheet(tones, style.scheme)
    shape(root, "rect", class_="paper", width="100%", height="100%")
    return root


def _draw_panel(page: _Page, panel: Panel, style: Style, most: float) -> None:
    """Heading, chart with messages, and curves of one schedule."""
    page.y += GAP
    if panel.title:
        page.write(panel.title, "ink", HEADING)
        page.write_lines(panel.subtitle, "faint")
        page.y += GAP
    page.y += draw_gantt(page.part(), panel, page.layout, style)
    page.y += draw_curves(page.part(), panel, page.layout, most) + GAP


def description(panel: Panel) -> str:
    """One schedule in one sentence."""
    peaks = ", ".join(amount(round(curve.peak, 2)) for curve in panel.curves)
    name = f"{panel.title}: " if panel.title else ""
    return (
        f"{name}{panel.actions:,} actions on {panel.ranks:,} pipeline ranks from time {amount(panel.begin)} to "
        f"{amount(panel.end)}. Peaks of activations held, rank by rank: {peaks}."
    )


def notes(panels: Sequence[Panel], axis: Axis, sent: int) -> Iterator[str]:
    """Yield a sentence for everything that is not drawn; ``sent`` is the number of messages."""
    gaps = [f"{amount(low)} to {amount(high)}" for (low, high), _ in axis.breaks]
    if gaps:
        actions = sum(panel.actions for panel in panels)
        yield f"{actions:,} actions are too many to draw. Left out, at the dotted lines: time {', '.join(gaps)}."
    if sent > MAX_MESSAGES:
        yield f"{sent:,} messages are too many to draw."
