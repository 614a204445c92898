"""Build the HTML elements of a page: sections, places of charts, tables and lists."""

from collections.abc import Callable, Iterable
from xml.etree.ElementTree import Element, SubElement

from rich.table import Table

from meshwright.present.console import printable
from meshwright.present.html.html_items import html_items
from meshwright.present.html.recorded_console import recorded


def element(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    """Add an element with text; ``class_`` and ``for_`` stand for the attributes of that name."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    child = SubElement(parent, tag, named)
    child.text = printable(text) or None
    return child


def section(page: Element, name: str, title: str) -> Element:
    """Add a section with its heading."""
    found = element(page, "section", id=name, aria_labelledby=f"{name}-title")
    element(found, "h2", title, id=f"{name}-title")
    return found


def chart_place(parent: Element, name: str, description: str) -> None:
    """Add the place of a chart, which may be wider than the page; ``description`` is what a screen reader says."""
    wide = element(parent, "div", class_="wide", role="region", tabindex="0", aria_label=f"Chart: {name}")
    element(wide, "div", class_="chart", id=f"chart-{name}", role="img", aria_label=description)


def folded(parent: Element, title: str) -> Element:
    """Add a part of the page that is folded on screen."""
    details = element(parent, "details")
    element(details, "summary", title)
    return details


def add_tables(parent: Element, *tables: Table) -> None:
    """Add tables that scroll sideways on a narrow screen."""
    for table in tables:
        if not table.row_count:
            continue
        wide = element(parent, "div", class_="wide", role="region", tabindex="0")
        wide.set("aria-label", str(table.title or ", ".join(str(column.header) for column in table.columns)))
        wide.extend(html_items([table]))


def add_printed(parent: Element, render: Callable[[], None]) -> None:
    """Add what a renderer of the terminal prints."""
    with recorded() as console:
        render()
    add_items(parent, console.items)


def add_items(parent: Element, items: Iterable[str | Table]) -> None:
    """Add recorded lines and tables."""
    for item in items:
        if isinstance(item, Table):
            add_tables(parent, item)
        else:
            parent.extend(html_items([item]))


def add_list(parent: Element, lines: Iterable[str]) -> None:
    """Add a list of sentences."""
    found = [line for line in lines if line]
    if found:
        items = element(parent, "ul", class_="plain")
        for line in found:
            element(items, "li", line)
