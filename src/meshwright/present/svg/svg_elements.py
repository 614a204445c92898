"""Build SVG elements, with numbers and text in the syntax of SVG.

Text that came from elsewhere loses what XML or a screen would not show; ``xml.etree`` escapes the rest.
"""

from xml.etree.ElementTree import Element, SubElement, tostring

from meshwright.present.console import printable
from meshwright.present.svg.picture_colours import FONT

WIDE, MEAN = 0.62, 0.57
"""Widths of a digit and, on average, of a letter in the wider sans-serif fonts, of the font size."""


def shape(parent: Element, tag: str, text: str = "", /, **attributes: float | str) -> Element:
    """Add a child; ``class_`` is the attribute class, ``stroke_width`` is stroke-width."""
    named = {key.rstrip("_").replace("_", "-"): _value(value) for key, value in attributes.items()}
    child = SubElement(parent, tag, named)
    child.text = one_line(text) or None
    return child


def drawing(title: str, width: float, height: float) -> Element:
    """Return an empty picture of so many pixels, with a title for screen readers."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": FONT})
    root.attrib |= {"width": pixels(width), "viewBox": f"0 0 {pixels(width)} {pixels(height)}"}
    shape(root, "title", title)
    return root


def document(root: Element) -> str:
    """Return a picture as the text of a file."""
    return tostring(root, encoding="unicode") + "\n"


def pixels(value: float) -> str:
    """Format a length to a hundredth, without needless digits."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def amount(value: float) -> str:
    """Format a time or an amount of memory for people: six digits, commas in thousands."""
    return f"{value:,.6g}"


def one_line(text: str) -> str:
    """Return a text on one line, with a sign for every character that XML or a screen would not show."""
    return printable(" ".join(text.split()))


def text_width(text: str, size: float) -> float:
    """About how many pixels a text takes."""
    return MEAN * size * len(text)


def shortened(text: str, size: float, width: float) -> str:
    """Return the text, or as much of it as surely fits."""
    most = max(1, int(width / (WIDE * size)))
    return text if len(text) <= most else text[: most - 1] + "…"


def _value(value: float | str) -> str:
    return value if isinstance(value, str) else pixels(value)
