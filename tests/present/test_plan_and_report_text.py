import re

import pytest
from rendered_text import HOSTILE, rendered

from meshwright import api
from meshwright.present.exported_files import render_export
from meshwright.present.plan_answers.comparison import render_comparison
from meshwright.present.plan_answers.layout_text import layout_words
from meshwright.present.plan_answers.plan_answer import render_answer
from meshwright.present.plan_answers.prediction import render_report
from meshwright.units import format_seconds

PLAN = """\
plan: 1
model: llama-3.1-8b
cluster: {device} x {devices}
workload: {{seq_len: 4096, global_batch: 64}}
stack: generic
layout: {{{layout}}}
sharding: {sharding}
pipeline: {{{pipeline}}}
"""


@pytest.fixture
def plan_file(tmp_path):
    def write(
        layout, devices=16, sharding="zero1", pipeline="micro_batch: 1", device="h100-sxm-80gb", name="p.yaml"
    ):
        file = tmp_path / name
        file.write_text(
            PLAN.format(layout=layout, devices=devices, sharding=sharding, pipeline=pipeline, device=device),
            encoding="utf-8",
        )
        return file

    return write


@pytest.mark.parametrize(
    ("pp", "pipeline"),
    [(1, "micro_batch: 1"), (16, "micro_batch: 1"), (16, "schedule: interleaved-1f1b, virtual_stages: 2")],
)
def test_a_prediction_has_a_line_per_pipeline_rank(plan_file, pp, pipeline):
    data = api.predict(plan_file(f"pp: {pp}, dp_shard: {16 // pp}", pipeline=pipeline)).to_json()
    text = rendered(render_report, data, None)
    table = text[text.index("GiB on rank") :].splitlines()[1 : pp + 1]
    assert [line.split()[0] for line in table] == [str(rank) for rank in range(pp)]
    assert format_seconds(data["step_time_s"]) in text
    assert "fits" in text
    assert all(name in text for name in data["origin"])


def test_shares_of_the_time_add_up(plan_file):
    text = rendered(render_report, api.predict(plan_file("pp: 4, dp_shard: 2, tp: 2")).to_json(), None)
    table = text[text.index("where") : text.index("Memory")]
    assert sum(float(share) for share in re.findall(r"([\d.]+)%", table)) == pytest.approx(100, abs=0.4)


def test_what_is_not_known_is_left_out_or_a_dash(plan_file):
    data = api.predict(plan_file("dp_shard: 16")).to_json()
    unknown = (
        "mfu",
        "mfu_causal",
        "hfu",
        "usd_per_hour",
        "usd_per_step",
        "joules_per_step",
        "fits_probability",
    )
    data |= dict.fromkeys(unknown) | {"step_time_low_s": None, "step_time_high_s": None}
    text = rendered(render_report, data, None)
    assert "MFU –" in text
    assert "Money" not in text
    assert "Energy" not in text
    assert "None" not in text


def test_a_plan_that_does_not_fit_says_so(plan_file):
    report = api.predict(plan_file("dp_replicate: 16", sharding="none", device="a100-sxm-40gb"))
    assert not report.fits
    assert "does not fit" in rendered(render_report, report.to_json(), "trace.json")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("model", "cluster"),
    [
        ("llama-3.2-1b", "h100-sxm-80gb x 1"),
        ("mixtral-8x7b", "a100-sxm-80gb x 32"),
        ("gpt-oss-20b", "mi300x x 8"),
    ],
)
def test_answers(model, cluster):
    data = api.plan(model, on=cluster, seq_len=2048, global_batch=64, top=4).to_json()
    text = rendered(render_answer, data, ())
    table = text[: text.index("Each is the best")]
    for number, proposal in enumerate(data["plans"], 1):
        assert re.search(
            rf"^{number} .*{re.escape(format_seconds(proposal['predict']['step_time_s']))}", table, re.M
        )
        assert all(word in table for word in layout_words(proposal["plan"]["layout"]).split())
    for reason, count in data["rejected"].items():
        assert f"{count:,} {reason}" in " ".join(text.split())
    assert f"{data['candidates_considered']:,} combinations" in text
    assert "is in out.yaml." in rendered(render_answer, data, ["out.yaml"])


def test_markup_in_an_answer_is_printed_as_it_stands():
    data = api.plan("llama-3.2-1b", on="h100-sxm-80gb x 4", seq_len=2048, global_batch=8, top=2).to_json()
    data["rejected"][HOSTILE] = 1
    for proposal in data["plans"]:
        proposal["predict"]["origin"] = dict.fromkeys(proposal["predict"]["origin"], HOSTILE)
        proposal["reasons"][0]["reason"] = HOSTILE
    assert rendered(render_answer, data, [HOSTILE]).count(HOSTILE) == 5


def test_markup_in_a_prediction_is_printed_as_it_stands(plan_file):
    data = api.predict(plan_file("dp_shard: 16")).to_json()
    data["origin"] = dict.fromkeys(data["origin"], HOSTILE)
    assert rendered(render_report, data, HOSTILE).count(HOSTILE) == len(data["origin"]) + 1


def test_comparisons(plan_file):
    a = plan_file("dp_shard: 16", name="a.yaml")
    b = plan_file("pp: 16", sharding="none", name="b.yaml")
    data = api.compare(a, b)
    text = rendered(render_comparison, data, "a.yaml", "b.yaml")
    assert len(text.splitlines()) == 1 + len(data["rows"])
    (line,) = [line for line in text.splitlines() if line.startswith("layout.pp")]
    assert line.split() == ["layout.pp", "1", "16"]
    step = next(row for row in data["rows"] if row["quantity"] == "step_time_s")
    assert f"{step['b'] / step['a']:.3f}" in text


def test_markup_in_a_comparison_is_printed_as_it_stands():
    rows = [
        {"quantity": HOSTILE, "a": HOSTILE, "b": None, "unit": "choice"},
        {"quantity": "step_time_s", "a": 0.0, "b": 1.0, "unit": "s"},
        {"quantity": "usd_per_hour", "a": None, "b": 2.0, "unit": "USD"},
    ]
    text = rendered(render_comparison, {"rows": rows}, HOSTILE, HOSTILE)
    assert text.count(HOSTILE) == 4


def test_exports(plan_file, capsys):
    data = api.export(plan_file("dp_shard: 16"), to="megatron")
    data["refused"] = [{"key": HOSTILE, "value": 1, "why": HOSTILE}]
    text = rendered(render_export, data, None)
    assert all(f"# ==== {name} ====\n{content}" in text for name, content in data["files"].items())
    assert HOSTILE in capsys.readouterr().err
    assert rendered(render_export, data, "out").split() == [f"out/{name}" for name in data["files"]]
