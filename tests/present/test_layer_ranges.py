"""Two plans by range of layers as text, and plans in words, from their JSON alone."""

import pytest
from rendered_text import HOSTILE, rendered

from meshwright import api
from meshwright.present.console import console
from meshwright.present.plan_answers.comparison import render_comparison
from meshwright.present.plan_answers.explanation import render_explanation
from meshwright.present.plan_answers.layer_ranges import render_ranges
from meshwright.present.plan_answers.layout_text import plan_words
from meshwright.units import format_bytes, format_seconds

TOP = """\
plan: 1
model: llama-3.2-1b
cluster: h100-sxm-80gb x 4
stack: meshwright
workload: {task: pretrain, seq_len: 2048, global_batch: 16, precision: bf16}
"""
UNIFORM = TOP + "layout: {dp_shard: 4}\nsharding: zero1\n"
RANGED = (
    TOP
    + """\
layouts:
  wide:
    grid: {dp_shard: 2, tp: 2}
    order: [tp, cp, dp_shard, dp_replicate, pp]
    states: {optimizer: [dp_shard, cp]}
  narrow:
    grid: {dp_shard: 4}
    order: [tp, cp, dp_shard, dp_replicate, pp]
    states: {optimizer: [dp_shard, cp]}
layers:
  embed: {layout: narrow}
  0..3: {layout: wide, recompute: full}
  4..15: {layout: narrow}
  head: {layout: narrow}
pipeline:
  stages: [[embed, 0..15, head]]
  placement: [0]
  micro_batch: 1
  schedule: {name: 1f1b}
"""
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    for name, text in (("ranged", RANGED), ("uniform", UNIFORM)):
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "ranged.yaml", folder / "uniform.yaml"


@pytest.fixture(scope="module")
def compared(files):
    return api.compare(*files)


def test_every_range_has_a_line_for_each_plan(compared):
    text = rendered(render_comparison, compared, "a.yaml", "b.yaml")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for row in compared["ranges"]["rows"]:
        for key, name in (("a", "a.yaml"), ("b", "b.yaml")):
            side = row[key]
            cells = [
                *(name, f"{side['layout']}: {side['degrees']}", side["recompute"]),
                format_seconds(side["passes_s"]),
                *(format_bytes(side[of]) for of in ("states_bytes", "activations_bytes")),
            ]
            line = " ".join(cells)
            assert (f"{row['blocks']} {line}" if key == "a" else line) in lines


def test_an_explanation_against_another_plan_has_the_same_table(files):
    data = api.explain(files[0], against=files[1]).to_json()
    text = rendered(render_explanation, data, "a.yaml", "b.yaml")
    assert "Layers of both plans, on one device of each pipeline rank (predicted)" in text
    assert "wide: dp_shard 2 tp 2 zero1" in text
    alike = api.explain(files[1], against=files[1]).to_json()
    assert "Layers of both plans" not in rendered(render_explanation, alike, "a.yaml", "b.yaml")


def test_a_reason_stands_in_place_of_the_table(compared):
    data = compared["ranges"] | {"rows": [], "why": HOSTILE}
    text = rendered(lambda data, a, b: render_ranges(console(), data, a, b), data, HOSTILE, "b.yaml")
    assert text.count(HOSTILE) == 2
    assert "recompute  " not in text


def test_what_is_not_known_is_a_dash(compared):
    rows = [row | {"a": row["a"] | {"activations_bytes": None}} for row in compared["ranges"]["rows"]]
    text = rendered(render_comparison, compared | {"ranges": compared["ranges"] | {"rows": rows}}, "a", "b")
    assert sum(line.rstrip().endswith("–") for line in text.splitlines()) >= len(rows)


def test_plans_in_long_form_name_their_layouts(files):
    plan = api.load(files[0]).long.to_data()
    assert plan_words(plan) == (
        "2 layouts: narrow dp_shard 4 zero1 (embed, layers 4..15, head), wide dp_shard 2 tp 2 zero1 (layers 0..3), "
        "1f1b, micro-batch 1, recompute full in layers 0..3, none in layers 4..15, stages 16"
    )


def test_a_plan_of_one_layout_in_long_form_reads_as_its_short_one(files):
    resolved = api.load(files[1])
    assert plan_words(resolved.long.to_data()) == plan_words(resolved.short.to_data())
    layers = {"embed": {"layout": "main"}, "0..7": {"layout": "main", "recompute": "full"}}
    layers |= {"8..15": {"layout": "main"}, "head": {"layout": "main"}}
    ranged = resolved.long.to_data() | {"layers": layers}
    assert plan_words(ranged) == (
        "dp_shard4, 1f1b, micro-batch 1, zero1, recompute full in layers 0..7, none in layers 8..15"
    )
