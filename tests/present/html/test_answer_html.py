"""Answers as HTML: the same words and tables as in the terminal, pictures that add up, nothing that runs."""

from xml.etree.ElementTree import fromstring

import pytest
from rendered_text import HOSTILE, text_of, with_hostile_text

from meshwright import api
from meshwright.present.description import render_description
from meshwright.present.html.answer_html import answer_html
from meshwright.present.html.figures import figures_of
from meshwright.present.plan_answers.plan_answer import render_answer
from meshwright.present.plan_answers.prediction import render_report
from meshwright.present.plan_answers.summary import render_summary

ON = "h100-sxm-80gb x 8"


def parsed(page):
    """Return the root, with spaces for line breaks, which are all that XML lacks."""
    return fromstring(page.replace("<br>", " "))


@pytest.fixture(scope="module")
def answer():
    keep = ["pp=4", "cp=1", "recompute=full"]
    return api.plan("llama-3.1-8b", on=[ON], seq_len=4096, global_batch=64, keep=keep, top=3).to_json()


def whole_answer(data):
    render_answer(data, [])


def summary(data):
    render_summary(data, [], [])


def report(data):
    render_report(data["plans"][0]["predict"], None)


def words(element):
    blocks = [block for block in element.iter() if block.tag in ("p", "caption", "th", "td", "pre")]
    return " ".join("".join(block.itertext()) for block in blocks).split()


@pytest.mark.parametrize("render", [whole_answer, summary, report])
def test_the_words_of_the_terminal_are_all_there(answer, render):
    page = parsed(answer_html(answer, render))
    found = set(words(page))
    missing = [word for word in text_of(render, answer).split() if word not in found and "…" not in word]
    assert not missing
    assert {element.tag.split("}")[-1] for element in page.iter()} <= {
        *("div", "p", "b", "small", "table", "caption", "thead", "tbody", "tr", "th", "td"),
        *("svg", "title", "rect", "text", "line"),
    }


def test_tables_have_a_cell_for_each_column_and_row(answer):
    page = parsed(answer_html(answer, report))
    ranks = next(table for table in page.iter("table") if "GiB on rank" in words_of_head(table))
    assert len(ranks.findall("tbody/tr")) == 4
    columns = len(ranks.findall("thead/tr/th"))
    assert all(len(row.findall("td")) == columns for row in ranks.findall("tbody/tr"))


def words_of_head(table):
    return ["".join(head.itertext()) for head in table.findall("thead/tr/th")]


def test_free_text_is_neither_markup_nor_html(answer):
    hostile = with_hostile_text(answer["plans"][0]["predict"]["origin"])
    data = {
        **answer["plans"][0]["predict"],
        "origin": hostile | {"<script>": "<script>alert(1)</script>\x00"},
    }
    page = answer_html(data, lambda data: render_report(data, None))
    assert "<script" not in page
    assert HOSTILE in " ".join(parsed(page).itertext())


def test_pictures_have_the_numbers_of_the_document(answer):
    times, memory = figures_of(answer)
    for (_, parts), plan in zip(times.bars, answer["plans"], strict=True):
        assert sum(parts.values()) == pytest.approx(plan["predict"]["step_time_s"], rel=1e-6)
    assert all("(predicted)" in picture.title for picture in (times, memory))
    stages = answer["plans"][0]["predict"]["memory_bytes"]["stages"]
    for (_, parts), stage in zip(memory.bars, stages, strict=True):
        assert sum(parts.values()) == pytest.approx(stage["total"])


def test_a_text_of_its_own_keeps_its_lines():
    data = {"name": "a"}
    page = parsed(answer_html(data, lambda _: print("plan: 1\n  layout: {}")))
    assert page.find("pre").text == "plan: 1\n  layout: {}"


def test_documents_without_predictions_have_no_picture():
    data = api.describe("llama-3.2-1b")
    assert not list(figures_of(data))
    assert parsed(answer_html(data, render_description)).find("table") is not None


def test_a_measured_step_has_a_picture_of_what_it_knows():
    bare = {"kind": "measured", "step_time_s": 1.0, "breakdown_s": {}, "memory_bytes": {"total": 1}}
    assert not list(figures_of(bare))
    (chart,) = figures_of(bare | {"breakdown_s": {"compute": 1.0}})
    assert chart.bars == [("measured", {"compute": 1.0})]
