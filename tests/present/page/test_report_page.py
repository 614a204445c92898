"""The page of a report as HTML: nothing is requested, every chart has its table, its data is the document."""

import gzip
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from report_pages import document

from meshwright.present.page.report_page import PACKED, SECTIONS, reasons_page, report_page
from meshwright.units import format_bytes, format_seconds

VOID = ("meta", "br", "input", "link", "img", "hr")


class Read(HTMLParser):
    """Elements in order, with their attributes and texts; refuses tags that do not match."""

    def __init__(self, page):
        super().__init__()
        self.found, self.open = [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append([tag, dict(attrs), "", [one[0] for one in self.open]])
        if tag not in VOID:
            self.open.append((tag, len(self.found) - 1))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, text):
        for _, place in self.open:
            self.found[place][2] += text

    def of(self, tag):
        return [one for one in self.found if one[0] == tag]


@pytest.fixture(scope="module")
def page():
    return report_page(document())


@pytest.fixture(scope="module")
def read(page):
    return Read(page)


def test_it_has_all_sections_in_order_and_links_to_them(read):
    names = [attributes["id"] for _, attributes, *_ in read.of("section")]
    assert names == [name for name in SECTIONS if name != "compared"]
    links = [attributes["href"] for _, attributes, *_ in read.of("a")]
    assert links == [f"#{name}" for name in names]


def test_nothing_is_requested(read):
    for tag, attributes, *_ in read.found:
        assert not {"src", "srcset", "data", "action"} & attributes.keys(), tag
        assert tag not in ("link", "img", "iframe", "object", "form", "base")
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")


def test_the_policy_has_the_digests_of_what_runs(read):
    (policy,) = [one[1]["content"] for one in read.of("meta") if "http-equiv" in one[1]]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    running = [one[2] for one in read.of("script") if "type" not in one[1]]
    styles = [one[2] for one in read.of("style")]
    assert (len(running), len(styles)) == (2, 1)
    for text in running + styles:
        assert "'sha256-" + b64encode(sha256(text.encode()).digest()).decode() + "'" in policy


def test_its_data_is_the_document(read):
    texts = {one[1].get("id"): one[2] for one in read.of("script")}
    shown, step = json.loads(texts["report-data"]), json.loads(gzip.decompress(b64decode(texts["step-data"])))
    wanted = json.loads(json.dumps(document()))
    assert {key: shown[key] for key in wanted if key not in PACKED} == {
        key: value for key, value in wanted.items() if key not in PACKED
    }
    assert step == {"timeline": wanted["timeline"], "memory": wanted["memory_over_time"]}


def test_every_chart_has_a_name_and_a_table_in_its_section(page, read):
    charts = [one for one in read.of("div") if one[1].get("class") == "chart"]
    assert len(charts) == 7
    for _, attributes, *_ in charts:
        assert attributes["role"] == "img"
        assert attributes["aria-label"]
        rest = page.split(f'id="{attributes["id"]}"')[1].split("</section>")[0]
        assert "<table" in rest or "<li>" in rest


def test_figures_are_formatted_as_in_the_terminal(read):
    report = document()["predict"]
    cards = " ".join(one[2] for one in read.of("dd"))
    for words in (format_seconds(report["step_time_s"]), format_bytes(report["memory_bytes"]["total"])):
        assert words in cards
    assert f"{report['tokens_per_s']:,.0f}" in cards


def test_without_a_search_it_says_so():
    read = Read(report_page(document(search=False)))
    texts = {one[1]["id"]: one[2] for one in read.of("section")}
    assert all("--no-search" in texts[name] for name in ("why", "pareto", "search"))


HOSTILE = "</script><img src=x onerror=alert(1)>\x00\u2028"


def hostile(value):
    if isinstance(value, dict):
        return {key: hostile(one) for key, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return value + HOSTILE if isinstance(value, str) and " " in value else value


def test_texts_of_users_stay_texts():
    data = json.loads(json.dumps(document()))
    wrong = data | {
        "title": HOSTILE,
        "sentence": HOSTILE,
        "explain": data["explain"] | {"summary": [HOSTILE]},
    }
    wrong["predict"] = data["predict"] | {"remarks": [HOSTILE], "origin": hostile(data["predict"]["origin"])}
    page = report_page(wrong)
    assert "<img" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert len(Read(page).of("script")) == 4
    assert not Read(page).of("img")


def test_reasons_have_a_page():
    refusal = {"error": "No plan fits.", "reasons": ["a <b>", "c"], "suggestion": "more devices"}
    read = Read(reasons_page("llama", refusal))
    assert [one[2] for one in read.of("li")] == ["a <b>", "c"]
    assert not read.of("script")
