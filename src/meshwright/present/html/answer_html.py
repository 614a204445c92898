"""Convert an answer to HTML for notebooks: pictures, then the text and tables of the terminal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from meshwright.present.console import printable
from meshwright.present.html.figures import figures_of
from meshwright.present.html.html_items import html_items
from meshwright.present.html.recorded_console import recorded
from meshwright.present.svg.stacked_bars import stacked_bars


def answer_html(
    data: dict[str, Any], render: Callable[[dict[str, Any]], None], remarks: Sequence[str] = ()
) -> str:
    """Return one ``div`` element, without scripts and style sheets; ``render`` prints the answer in a terminal."""
    page = Element("div")
    for remark in remarks:
        SubElement(page, "p").text = printable(f"Remark: {remark}")
    page.extend([stacked_bars(chart) for chart in figures_of(data)])
    page.extend(_printed(data, render))
    return tostring(page, encoding="unicode", method="html")


def _printed(data: dict[str, Any], render: Callable[[dict[str, Any]], None]) -> Iterator[Element]:
    """Yield the tables and lines of the terminal, then what is a text of its own, as files are."""
    plain = StringIO()
    with recorded() as console, redirect_stdout(plain), redirect_stderr(plain):
        render(data)
    yield from html_items(console.items)
    if plain.getvalue().strip():
        text = Element("pre")
        text.text = "\n".join(printable(line) for line in plain.getvalue().splitlines())
        yield text
