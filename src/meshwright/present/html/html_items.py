"""Convert recorded text and tables to HTML elements without style sheets, which some viewers of notebooks strip."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshwright.present.console import printable
from meshwright.present.html.recorded_console import WIDTH, Item


def html_items(items: Iterable[Item]) -> Iterator[Element]:
    """Yield an element for each table and for each run of lines between tables."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, str):
            lines += item.split("\n")
            continue
        yield from _paragraphs(lines)
        lines = []
        yield _table(item)
    yield from _paragraphs(lines)


def _paragraphs(lines: Iterable[str]) -> Iterator[Element]:
    """Yield a paragraph for each run of lines that are not blank."""
    for blank, run in groupby(lines, key=lambda line: not line.strip()):
        if blank:
            continue
        paragraph = Element("p")
        for number, line in enumerate(run):
            if number:
                SubElement(paragraph, "br")
            _fill(paragraph, line)
        yield paragraph


def _table(table: Table) -> Element:
    element = Element("table")
    if table.title:
        _fill(SubElement(element, "caption"), table.title)
    head = SubElement(SubElement(element, "thead"), "tr")
    for column in table.columns:
        _fill(SubElement(head, "th", scope="col", align=_side(column.justify)), column.header)
    body = SubElement(element, "tbody")
    sides = [_side(column.justify) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        row = SubElement(body, "tr")
        for side, cell in zip(sides, cells, strict=True):
            _fill(SubElement(row, "td", align=side), cell)
    return element


def _side(justify: str) -> str:
    return "right" if justify == "right" else "left"


def _fill(parent: Element, content: object) -> None:
    """Add text with its bold and dim parts to an element."""
    text = content if isinstance(content, Text) else Text.from_markup(str(content))
    console = Console(width=WIDTH)
    for segment in text.render(console):
        words = printable(segment.text)
        style = segment.style
        if style is not None and style.bold:
            SubElement(parent, "b").text = words
        elif style is not None and style.dim:
            SubElement(parent, "small").text = words
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + words
        else:
            parent.text = (parent.text or "") + words
