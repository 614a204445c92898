"""Write the page of a report: one HTML file that opens offline and requests nothing."""

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, tostring

from meshwright.present.html.figures import KIND_COLOURS
from meshwright.present.page import report_sections as sections
from meshwright.present.page.page_elements import add_list, element
from meshwright.present.page.page_scripts import charts, content_policy, echarts, style_sheet
from meshwright.present.plan_answers.layout_text import plan_words
from meshwright.present.plan_answers.prediction import PARTS

SECTIONS = {
    "compared": ("Compared plans", sections.compared_plans),
    "cost": ("Cost", sections.cost),
    "layout": ("Layout", sections.layout),
    "step": ("Timeline", sections.timeline),
    "memory": ("Memory", sections.memory),
    "time": ("Time", sections.time),
    "why": ("Why", sections.reasons),
    "pareto": ("Trade-offs", sections.pareto),
    "changes": ("Changes", sections.changes),
    "assumptions": ("Assumptions", sections.assumptions),
    "search": ("Search", sections.searched),
}
"""Sections by id: name in the page's navigation, and what adds it."""
PACKED = ("timeline", "memory_over_time")
"""Keys of the document that the page holds compressed."""
Data = Mapping[str, Any]


def report_page(data: Data) -> str:
    """Return the page of a report's document."""
    root, body = _page(data["title"])
    header = element(body, "header")
    element(header, "h1", data["title"])
    element(header, "p", data["sentence"], class_="answer")
    for remark in data["predict"]["remarks"]:
        element(header, "p", remark, class_="remark")
    main = element(body, "main")
    for _, add in SECTIONS.values():
        add(main, data)
    links = element(element(header, "nav", aria_label="Sections"), "ul")
    for found in main:
        element(element(links, "li"), "a", SECTIONS[found.attrib["id"]][0], href=f"#{found.attrib['id']}")
    element(body, "footer", "Predicted and simulated by Meshwright; nothing here was measured.")
    _add_data(body, data)
    for script in (echarts(), charts()):
        element(body, "script").text = script
    return _text(root)


def reasons_page(title: str, data: Data) -> str:
    """Return the page of a question without an answer: the message, all reasons and the suggestion."""
    root, body = _page(title)
    main = element(body, "main")
    element(main, "h1", title)
    element(main, "p", data["error"], class_="answer")
    add_list(main, data["reasons"])
    if data["suggestion"]:
        element(main, "p", f"Suggestion: {data['suggestion']}", class_="remark")
    return _text(root)


def _page(title: str) -> tuple[Element, Element]:
    """Return the root and the body of a page with its head."""
    root = Element("html", lang="en")
    head = element(root, "head")
    element(head, "meta", charset="utf-8")
    element(head, "meta", http_equiv="Content-Security-Policy", content=content_policy())
    element(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    element(head, "title", f"{title} · Meshwright")
    element(head, "style").text = style_sheet()
    return root, element(root, "body")


def _add_data(body: Element, data: Data) -> None:
    """Add the document for the charts; the simulated step is compressed."""
    shown = {key: value for key, value in data.items() if key not in PACKED}
    points = data["pareto_memory"] or ()
    shown["words"] = {
        "parts": PARTS,
        "kind_colours": KIND_COLOURS,
        "action_colours": sections.ACTION_COLOURS,
        "pareto": [plan_words(point["plan"]) for point in points],
    }
    text = json.dumps(shown, separators=(",", ":"), allow_nan=False)
    element(body, "script", type="application/json", id="report-data").text = text.replace("<", "\\u003c")
    if data["timeline"] is not None:
        step = {"timeline": data["timeline"], "memory": data["memory_over_time"]}
        packed = gzip.compress(json.dumps(step, separators=(",", ":")).encode(), 9, mtime=0)
        packed_text = b64encode(packed).decode()
        element(body, "script", type="application/gzip", id="step-data").text = packed_text


def _text(root: Element) -> str:
    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"
