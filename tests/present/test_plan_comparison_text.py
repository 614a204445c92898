"""Rows of a comparison of plans whose replicas exchange, and the difference that an explanation names."""

import json

import pytest
from rendered_text import rendered

from meshwright import api
from meshwright.present.plan_answers.comparison import render_comparison

ENTRY = {"state": "parameter", "over": "dp_replicate", "every": 4}
ENCODED = {"state": "gradient", "over": "dp_replicate", "compress": {"quantise": "int8"}}


@pytest.fixture
def compared(tmp_path):
    def files(*sides):
        for number, entries in enumerate(sides):
            plan = {
                "plan": 1,
                "model": "gpt2",
                "cluster": "a100-sxm-40gb x 2",
                "workload": {"seq_len": 1024, "global_batch": 8},
                "stack": "meshwright",
                "layout": {"dp_replicate": 2},
                "synchronise": entries,
            }
            (tmp_path / f"{number}.yaml").write_text(json.dumps(plan), encoding="utf-8")
            yield tmp_path / f"{number}.yaml"

    return files


def rows_of(paths):
    return {row["quantity"]: (row["a"], row["b"]) for row in api.compare(*paths)["rows"]}


def test_entries_are_compared_as_plan_text_with_the_figures_of_rounds(compared):
    paths = list(compared([], [ENTRY | {"outer": {"sgd": {"lr": 1.0}}}]))
    rows = rows_of(paths)
    text = "{state: parameter, over: dp_replicate, every: 4, outer: {sgd: {lr: 1.0}}}"
    assert rows["synchronise.0"] == (None, text)
    assert rows["unit"] == ("step", "round")
    assert rows["steps_per_round"] == (1, 4)
    assert all(0 < value <= 1 for value in rows["utilisation"])
    assert "breakdown_s.codec" not in rows
    assert "{state: parameter" in rendered(render_comparison, api.compare(*paths), "a", "b")


def test_a_part_that_one_plan_has_is_a_row_and_plans_without_entries_have_no_rounds(compared):
    codec = rows_of(compared([], [ENCODED]))["breakdown_s.codec"]
    assert codec[0] is None
    assert codec[1] > 0
    assert not {"unit", "steps_per_round", "utilisation"} & rows_of(compared([], [])).keys()


def test_an_explanation_against_a_plan_without_entries_names_them(compared):
    own, other = compared([ENTRY], [])
    found = api.explain(own, against=other).to_json()
    words = ["{state: parameter, over: dp_replicate, every: 4}", "exact in every step"]
    assert found["against"]["changes"] == {"synchronise": words}
    assert "the same plan" not in found["summary"][0]
