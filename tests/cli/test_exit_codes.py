"""Exit codes, streams and the JSON that scripts rely on."""

import pytest
from command_runs import QUESTION, is_finite, plan_text, run, write

REPORT = {
    "unit",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "tokens_per_s",
    "tokens_per_s_per_device",
    "mfu",
    "mfu_causal",
    "hfu",
    "memory_bytes",
    "fits",
    "fits_probability",
    "breakdown_s",
    "usd_per_hour",
    "joules_per_step",
    "origin",
}
MEMORY = {"total", "capacity", "parameters", "gradients", "optimizer", "activations", "stages"}
BREAKDOWN = {"compute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "host"}
MODEL = {
    "name",
    "parameters",
    "parameters_active",
    "parameters_embedding",
    "flops_per_token_forward",
    "flops_per_token_forward_causal",
    "kv_bytes_per_token",
    "blocks",
    "source",
}


@pytest.fixture
def plan_file(tmp_path):
    return write(tmp_path / "plan.yaml", plan_text())


def assert_report(data, devices, tokens):
    assert data.keys() >= REPORT
    assert data["memory_bytes"].keys() >= MEMORY
    assert data["breakdown_s"].keys() >= BREAKDOWN
    assert is_finite(data)
    assert sum(data["breakdown_s"].values()) == pytest.approx(data["step_time_s"], rel=1e-9)
    assert min(data["breakdown_s"].values()) >= 0
    assert data["tokens_per_s"] == pytest.approx(tokens / data["step_time_s"])
    assert data["tokens_per_s_per_device"] == pytest.approx(data["tokens_per_s"] / devices)
    assert 0 < data["mfu_causal"] < data["mfu"] <= data["hfu"] < 1
    stages = data["memory_bytes"]["stages"]
    assert data["memory_bytes"]["total"] == max(stage["total"] for stage in stages)
    unknown = {name for name in REPORT if data[name] is None}
    assert unknown <= data["origin"].keys()


def test_predict(plan_file):
    done = run("predict", plan_file, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.data["unit"] == "step"
    assert done.data["fits"] is True
    assert_report(done.data, devices=8, tokens=64 * 4096)


def test_predict_of_a_plan_that_does_not_fit_prints_its_report_and_answers_no(plan_file):
    done = run("predict", plan_file, "--set", "micro_batch=16", "--json")
    assert (done.code, done.err) == (1, "")
    assert done.data["fits"] is False
    assert_report(done.data, devices=8, tokens=64 * 4096)
    shown = run("predict", plan_file, "--set", "micro_batch=16")
    assert shown.code == 1
    assert "does not fit" in shown.out


def test_plan():
    done = run("plan", "llama-3.1-8b", *QUESTION, "--top", 3, "--json")
    assert (done.code, done.err) == (0, "")
    data = done.data
    assert data.keys() >= {
        "candidates_considered",
        "candidates_feasible",
        "search_time_s",
        "rejected",
        "plans",
    }
    assert len(data["plans"]) == 3
    rejected = sum(data["rejected"].values())
    assert rejected == data["candidates_considered"] - data["candidates_feasible"]
    assert 0 < data["candidates_feasible"] <= data["candidates_legal"] < data["candidates_considered"]
    for proposal in data["plans"]:
        assert proposal.keys() >= {"plan", "predict", "reasons"}
        assert proposal["predict"]["fits"]
        assert_report(proposal["predict"], devices=8, tokens=64 * 4096)
        assert all({"field", "value", "reason"} <= reason.keys() for reason in proposal["reasons"])


def test_a_proposal_is_a_plan_file_with_the_same_prediction(tmp_path):
    file = tmp_path / "best.yaml"
    question = (*QUESTION[2:], "--on", "h100-sxm-80gb x 16", "--keep", "tp=1", "--keep", "cp=1")
    data = run("plan", "mixtral-8x7b", *question, "-o", file, "--json").data
    again = run("predict", file, "--json")
    assert again.code == 0
    advice = again.data["interval"]["advice"]
    assert again.data == data["plans"][0]["predict"] | {"remarks": [advice]}


def test_describe_a_model():
    done = run("describe", "llama-3.1-8b", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.data.keys() >= MODEL
    assert done.data["parameters"] == 8_030_261_248
    assert done.data["parameters_embedding"] == 128256 * 4096
    assert is_finite(done.data)


@pytest.mark.parametrize("name", ["h100-sxm-80gb x 24", "gb200", "torchtitan", "megatron-core@0.19"])
def test_describe_clusters_and_stacks(name):
    done = run("describe", name, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.data["kind"] in ("cluster", "stack")
    assert is_finite(done.data)


@pytest.mark.parametrize("form", [(), ("--long",)])
def test_describe_a_plan(plan_file, form):
    done = run("describe", plan_file, *form, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.data["kind"] == "plan"


def test_compare(plan_file, tmp_path):
    other = write(tmp_path / "other.yaml", plan_text(layout="{pp: 1, dp_shard: 8}", recompute="full"))
    done = run("compare", plan_file, other, "--json")
    assert (done.code, done.err) == (0, "")
    rows = {row["quantity"]: row for row in done.data["rows"]}
    assert all(row.keys() == {"quantity", "a", "b", "unit"} for row in rows.values())
    assert (rows["recompute"]["a"], rows["recompute"]["b"]) == ("none", "full")
    assert (rows["layout.tp"]["a"], rows["layout.tp"]["b"]) == (2, 1)
    for side, file in (("a", plan_file), ("b", other)):
        report = run("predict", file, "--json").data
        assert rows["step_time_s"][side] == report["step_time_s"]
        assert rows["memory_bytes.total"][side] == report["memory_bytes"]["total"]


def test_a_plan_differs_from_itself_in_nothing(plan_file):
    rows = run("compare", plan_file, plan_file, "--json").data["rows"]
    assert rows
    assert all(row["a"] == row["b"] for row in rows)
    assert not [row for row in rows if row["quantity"].startswith("layout")]


@pytest.mark.parametrize(("target", "sharding"), [("megatron", "zero1"), ("torchtitan", "zero3")])
def test_export(tmp_path, target, sharding):
    file = write(tmp_path / "plan.yaml", plan_text(sharding=sharding, stack="generic"))
    done = run("export", file, "--to", target, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.data.keys() == {"files", "refused"}
    assert all(isinstance(text, str) and text for text in done.data["files"].values())
    assert all(refusal.keys() == {"key", "value", "why"} for refusal in done.data["refused"])
    shown = run("export", file, "--to", target)
    assert all(text in shown.out for text in done.data["files"].values())


def test_text_goes_to_standard_output_and_problems_to_standard_error(tmp_path):
    plan_file = write(tmp_path / "plan.yaml", plan_text(cluster="b200 x 8"))
    for arguments in (
        ("predict", plan_file),
        ("compare", plan_file, plan_file),
        ("describe", "mixtral-8x7b"),
    ):
        done = run(*arguments)
        assert (done.code, done.err) == (0, "")
        assert done.out.strip()
    wrong = run("predict", plan_file, "--set", "tp=3")
    assert (wrong.code, wrong.out) == (2, "")
    assert "layout" in wrong.err


def test_problems_in_json_go_to_standard_output(plan_file):
    done = run("predict", plan_file, "--set", "tp=3", "--json")
    assert (done.code, done.err) == (2, "")
    (problem,) = done.data["problems"]
    assert problem.keys() == {"field", "value", "rule", "suggestion", "severity"}


def test_no_command_shows_help_and_an_unknown_one_is_wrong():
    assert run().code == 2
    assert run("--help").code == 0
    assert run("--version").out.startswith("meshwright ")
    assert run("pland", "llama-3.1-8b").code == 2
    assert run("predict").code == 2
    assert run("plan", "llama-3.1-8b", "--seq-len", "x").code == 2
