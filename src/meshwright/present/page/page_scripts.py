"""Read the scripts and the style sheet of a page, and write the content security policy that allows them."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

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
    parts = (_text(f"charts/{name}.js").removeprefix('"use strict";\n') for name in CHARTS)
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


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
