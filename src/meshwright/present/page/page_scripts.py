"""Read the scripts and the style sheet of a page, and write the content security policy that allows them."""

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from meshwright.present.svg.picture_colours import OKABE_ITO

STRICT = '"use strict";\n'
CHARTS = (
    *("chart_base", "page", "layout", "timeline", "memory", "time", "neighbours", "pareto", "sensitivity"),
    "start",
)
"""Scripts of the charts, in the order in which they run."""


@cache
def echarts() -> str:
    """Return Apache ECharts 6.1.0, which draws the charts."""
    return _text("echarts/echarts.min.js")


@cache
def charts() -> str:
    """Return the scripts of all charts as one, in a scope of their own."""
    parts = (_text(f"charts/{name}.js").removeprefix(STRICT) for name in CHARTS)
    return f"{STRICT}(() => {{\n{_colours()}" + "\n".join(parts) + "})();\n"


@cache
def chart_base() -> str:
    """Return what all charts share, for pages that draw charts of their own."""
    return STRICT + _colours() + _text("charts/chart_base.js").removeprefix(STRICT)


def _colours() -> str:
    """Return the colours of all pictures as a constant; black does not show on dark paper."""
    return f"const COLOURS = {json.dumps([one for one in OKABE_ITO if one != '#000000'])};\n"


@cache
def style_sheet() -> str:
    """Return the style sheet."""
    return _text("report.css")


def content_policy() -> str:
    """Return the content security policy: only these scripts and this style sheet, and no requests."""
    scripts = " ".join(f"'{_digest(text)}'" for text in (echarts(), charts()))
    return (
        f"default-src 'none'; script-src {scripts}; style-src '{_digest(style_sheet())}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _text(name: str) -> str:
    return (files("meshwright.present.page") / "assets" / name).read_text(encoding="utf-8")
