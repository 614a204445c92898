"""An explanation as text, from its JSON alone."""

import pytest
from rendered_text import HOSTILE, rendered, with_hostile_text

from meshwright import api
from meshwright.present.plan_answers.explanation import render_explanation

PLAN = """\
plan: 1
model: llama-3.2-1b
cluster: h100-sxm-80gb x 4
workload: {{seq_len: 2048, global_batch: 16}}
layout: {{{layout}}}
sharding: zero1
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    paths = []
    for name, layout in (("a", "dp_shard: 4"), ("b", "pp: 2, dp_shard: 2")):
        path = folder / f"{name}.yaml"
        path.write_text(PLAN.format(layout=layout), encoding="utf-8")
        paths.append(path)
    return paths


@pytest.fixture(scope="module")
def explained(files):
    return api.explain(files[1]).to_json()


@pytest.fixture(scope="module")
def compared(files):
    return api.explain(files[0], against=files[1]).to_json()


def _flat(text):
    return " ".join(text.split())


def test_every_sentence_of_the_data_is_told(explained):
    text = _flat(rendered(render_explanation, explained, "b.yaml", None))
    sentences = [*explained["summary"], *explained["time"]["text"], *explained["memory"]["text"]]
    for key in ("sensitivity", "choices", "rivals", "turns"):
        sentences += [one["text"] for one in explained[key]]
    assert not [sentence for sentence in sentences if _flat(sentence) not in text]
    assert "A tie: two predictions whose ratio is below" in text


def test_two_plans_are_told_part_by_part(compared):
    text = _flat(rendered(render_explanation, compared, "a.yaml", "b.yaml"))
    assert "a.yaml against b.yaml" in text
    assert "pp: 1 → 2" in text
    assert not [line for line in compared["against"]["lines"] if _flat(line) not in text]


@pytest.mark.parametrize("other", [None, "b.yaml"])
def test_markup_is_printed_as_it_stands(explained, compared, other):
    data = explained if other is None else compared
    hostile = data | {"summary": [HOSTILE], "origin": with_hostile_text(data["origin"])}
    assert HOSTILE in rendered(render_explanation, hostile, HOSTILE, other)
