"""Verbs on serving plans: those that read them, and those that refuse them by name."""

import json

import pytest
from command_runs import refused, run
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import ONE_POOL, PHASES, POOLS, TEXTS, serving
from test_plan_file import MUTATIONS, mutated

from meshwright import api
from meshwright.errors import attempted
from meshwright.plans.files.plan_file import parse_any_plan
from meshwright.verbs.check import check_text
from meshwright.verbs.import_ import ImportRequest


@pytest.fixture
def pools(tmp_path):
    path = tmp_path / "pools.yaml"
    path.write_text(POOLS, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", TEXTS)
def test_a_legal_plan_is_ok(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    done = run("check", path, "--json")
    assert (done.code, done.data["ok"]) == (0, True)
    assert {problem["severity"] for problem in done.data["problems"]} <= {"warning"}
    assert parse_any_plan(json.dumps(done.data["plan"])) == serving(text)
    assert run("check", path).out.splitlines()[-1].startswith("ok")


def test_a_check_has_the_figures_of_the_prediction(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    checked, predicted = (run(verb, path, "--json").data for verb in ("check", "predict"))
    assert checked["step_time_s"] == predicted["step_time_s"] > 0
    assert checked["memory_bytes"] == predicted["memory_bytes"]


def test_what_has_no_prediction_is_checked_without_figures(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PHASES.replace("h100-sxm-80gb", "a100-pcie-80gb"), encoding="utf-8")
    data = run("check", path, "--json").data
    assert data["step_time_s"] is None
    assert "host_gbyte_per_s_per_device" in data["origin"]["step_time_s"]


def test_a_plan_that_does_not_fit_is_not_ok(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL.replace("tp: 4", "tp: 1"), encoding="utf-8")
    done = run("check", path, "--json")
    assert (done.code, done.data["ok"], done.data["fits"]) == (1, False, False)
    assert done.data["problems"][-1]["field"] == "memory_bytes.total"
    assert run("predict", path, "--json").code == 1


def test_a_prediction_prints_its_latencies_and_pools(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    printed = run("predict", path).out
    for words in (
        "output tokens/s (predicted)",
        "time to first token",
        "What limits it",
        "Pools",
        "Money",
        "Origin",
    ):
        assert words in printed


def test_settings_change_the_plan_that_is_predicted(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    slow = run("predict", path, "--json").data["serving"]
    quick = run("predict", path, "--set", "tp=8", "--set", "replicas=1", "--json").data["serving"]
    assert quick["tpot_s"] < slow["tpot_s"]
    assert "unknown key" in refused("predict", path, "--set", "tq=8")


@pytest.mark.parametrize("option", ["--tokens=15T", "--trace=t.json", "--csv=t.csv", "--constants=c.yaml"])
def test_options_of_plans_that_train_are_refused(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    assert "is an option for plans that train" in refused("predict", path, option)
    assert [one.name for one in tmp_path.iterdir()] == ["plan.yaml"]


def test_an_assumed_price_is_that_of_the_prediction(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    data = run("predict", path, "--assume", "usd_per_device_hour=2", "--json").data
    assert data["usd_per_hour"] == 16


def test_a_broken_law_is_an_answer_with_exit_code_1(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        POOLS.replace("replicas: 2", "replicas: 4").replace("fill, to", "fil, to"), encoding="utf-8"
    )
    done = run("check", path, "--json")
    assert (done.code, done.data["ok"]) == (1, False)
    fields = [problem["field"] for problem in done.data["problems"]]
    assert fields == ["pools", "edges.0.from", "pools.fill.does"]
    assert all(problem["suggestion"] for problem in done.data["problems"])
    assert "not ok" in run("check", path).out


def test_warnings_do_not_make_a_plan_wrong(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(POOLS.replace("output_tokens: 1000", "output_tokens: 1"), encoding="utf-8")
    done = run("check", path, "--json")
    assert (done.code, done.data["ok"]) == (0, True)
    assert {problem["severity"] for problem in done.data["problems"]} == {"warning"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("input_tokens: 4000", "input_tokens: 0", "workload.input_tokens = 0: must be at least 1"),
        ("input_tokens: 4000", f"input_tokens: {10**30}", "must be at most"),
        ("concurrency: 512", "concurrency: 512, rate_per_s: 2", "a workload has one of both"),
        ("edges:", "sharding: zero1\nedges:", "is a key of plans that train"),
        ("edges:", "route: {}\nedges:", "not supported yet"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "describe"])
def test_wrong_keys_and_numbers_are_refused(tmp_path, verb, old, new, words):
    path = tmp_path / "plan.yaml"
    path.write_text(POOLS.replace(old, new), encoding="utf-8")
    assert words in refused(verb, path)


def test_a_description_has_every_default_and_the_idle_devices(pools):
    data = run("describe", pools, "--json").data
    assert (data["kind"], data["form"], data["devices"], data["idle_devices"]) == ("plan", "serving", 32, 8)
    fill, write = data["pools"]["fill"], data["pools"]["write"]
    assert (fill["replicas"], fill["devices_per_replica"], fill["devices"]) == (2, 8, 16)
    assert fill["layouts"] == {"prefill": {"attention_dp": 1, "tp": 8, "pp": 1, "cp": 1, "ep": 8, "etp": 1}}
    assert write["layouts"]["decode"]["attention_dp"] == 16
    assert data["plan"]["pools"]["fill"]["layout"]["etp"] == 1
    assert data["plan"]["pools"]["fill"]["batching"]["block_tokens"] == 16
    assert "pools.fill.layout.etp" in data["defaults"]
    assert "pools.fill.layout.ep" in data["given"]
    assert (data["mean_input_tokens"], data["mean_output_tokens"]) == (4000, 1000)


def test_a_description_is_a_plan_file_with_a_table_of_pools(tmp_path, pools):
    text = run("describe", pools).out
    assert "# devices: 32, idle devices: 8\n" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(("# fill", "# write"))]
    assert rows == [
        ["#", "fill", "prefill", "prefill", "1", "8", "1", "1", "8", "1", "8", "2", "16"],
        ["#", "write", "decode", "decode", "16", "1", "1", "1", "16", "1", "16", "1", "16"],
    ]
    again = tmp_path / "described.yaml"
    again.write_text(text, encoding="utf-8")
    assert api.describe(str(again))["plan"] == api.describe(str(pools))["plan"]


def test_phases_with_layouts_of_their_own_are_predicted_explained_and_compared(tmp_path):
    paths = [tmp_path / f"{name}.yaml" for name in ("phases", "one")]
    loaded = PHASES.replace("workload:", "workload:\n  concurrency: 256")
    paths[0].write_text(loaded, encoding="utf-8")
    one = loaded.replace("layouts: {prefill: {pp: 2, tp: 4}, decode: {tp: 8}}", "layout: {tp: 8}")
    paths[1].write_text(one, encoding="utf-8")
    predicted = run("predict", paths[0], "--json").data
    assert predicted["serving"]["cycle"]["change_s"] > 0
    assert "decode at once" in run("predict", paths[0]).out
    explained = run("explain", paths[0], "--json").data
    rates = {one["resource"]: one["elasticity"]["output_tokens_per_s"] for one in explained["sensitivity"]}
    assert rates["host_bandwidth"] > 0
    keys = {setting.split("=")[0] for one in explained["choices"] for setting in one["settings"]}
    assert {"pools.all.layouts.prefill.tp", "pools.all.layouts.decode.pp"} <= keys
    assert "change of the layout" in run("explain", paths[0]).out
    assert run("compare", *paths, "--json").code == 0
    assert "host_bandwidth" not in {
        one["resource"] for one in run("explain", paths[1], "--json").data["sensitivity"]
    }


def test_phases_with_layouts_of_their_own_have_a_row_each(tmp_path):
    path = tmp_path / "phases.yaml"
    path.write_text(PHASES, encoding="utf-8")
    rows = [line.split()[1:5] for line in run("describe", path).out.splitlines() if line.startswith("# all")]
    assert rows == [["all", "serve", "prefill", "1"], ["all", "serve", "decode", "1"]]
    path.write_text(ONE_POOL, encoding="utf-8")
    (row,) = [line for line in run("describe", path).out.splitlines() if line.startswith("# all")]
    assert "prefill and decode" in row


def test_names_of_files_are_relative_to_the_plan(tmp_path, monkeypatch):
    folder = tmp_path / "plans"
    folder.mkdir()
    cluster = "name: ours\npools:\n- {device: h100-sxm-80gb, count: 24}\n"
    (folder / "ours.yaml").write_text(cluster, encoding="utf-8")
    path = folder / "plan.yaml"
    path.write_text(ONE_POOL.replace("h100-sxm-80gb x 16", "ours.yaml"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run("describe", path, "--json").data["idle_devices"] == 16
    assert run("check", path, "--json").data["ok"]


VERBS = {
    "verify": (),
    "run": (),
    "report": (),
    "schedule": (),
    "probe": (),
}


@pytest.mark.parametrize("verb", VERBS)
def test_other_verbs_refuse_to_serve_by_name(pools, verb):
    message = refused(verb, pools, *VERBS[verb])
    assert "workload.task = 'serve': this verb takes no serving plans" in message
    assert "Suggestion: meshwright check" in message


def test_an_explanation_has_the_prediction_and_plans_one_step_away(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    data = run("explain", path, "--json").data
    assert data["predict"]["serving"] == run("predict", path, "--json").data["serving"]
    assert data["choices"]
    assert "Plans one step away" in run("explain", path).out
    assert "is an option for plans that train" in refused("explain", path, "--each", "tp")
    assert "is an option for plans that train" in refused("explain", path, "--against", path)


def test_a_comparison_has_the_keys_that_differ_and_both_predictions(tmp_path):
    paths = [tmp_path / name for name in ("a.yaml", "b.yaml")]
    for path, text in zip(paths, (ONE_POOL, ONE_POOL.replace("tp: 4", "tp: 8")), strict=True):
        path.write_text(text, encoding="utf-8")
    rows = {row["quantity"]: row for row in run("compare", *paths, "--json").data["rows"]}
    assert (rows["pools.all.layout.tp"]["a"], rows["pools.all.layout.tp"]["b"]) == (4, 8)
    both = [run("predict", path, "--json").data["serving"]["ttft_s"] for path in paths]
    assert [rows["serving.ttft_s"]["a"], rows["serving.ttft_s"]["b"]] == both
    assert "serving.ttft_s" in run("compare", *paths).out


LEVELS = """\
serving_levels: 1
runs: mine.csv
levels:
  - {model: llama-3.1-70b, device: h100-sxm-80gb, engine: vllm, tpot: {log_factor: 0.5, doubt: 0.01, rows: 7}}
"""


def test_a_calibration_moves_the_prediction_and_says_from_how_many_runs(tmp_path):
    path, levels = tmp_path / "plan.yaml", tmp_path / "levels.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    levels.write_text(LEVELS, encoding="utf-8")
    plain, moved = (
        run("predict", path, "--json", *options).data["serving"]
        for options in ((), ("--calibration", levels))
    )
    ratio = 1.6487212707 / plain["level"]["factors"]["tpot"]
    assert moved["tpot_s"] == pytest.approx(ratio * plain["tpot_s"])
    assert moved["level"]["rows"] >= 7
    assert "mine.csv" in moved["level"]["name"]
    assert moved["tpot_low_s"] < moved["tpot_s"] < moved["tpot_high_s"]
    explained = run("explain", path, "--calibration", levels, "--json").data
    assert explained["predict"]["serving"]["tpot_s"] == moved["tpot_s"]
    rows = run("compare", path, path, "--calibration", levels, "--json").data["rows"]
    assert next(row["a"] for row in rows if row["quantity"] == "serving.tpot_s") == moved["tpot_s"]
    assert "mine.csv" in run("predict", path, "--calibration", levels).out


def test_a_calibration_is_for_plans_that_serve(tmp_path):
    trains, levels = tmp_path / "trains.yaml", tmp_path / "levels.yaml"
    trains.write_text(TRAINS, encoding="utf-8")
    levels.write_text(LEVELS, encoding="utf-8")
    words = "is an option for plans that serve"
    assert words in refused("predict", trains, "--calibration", levels)
    assert words in refused("explain", trains, "--calibration", levels)
    assert words in refused("compare", trains, trains, "--calibration", levels)
    serves = tmp_path / "serves.yaml"
    serves.write_text(ONE_POOL, encoding="utf-8")
    levels.write_text(LEVELS.replace("rows: 7", "rows: 0"), encoding="utf-8")
    assert "rows" in refused("predict", serves, "--calibration", levels)


TRAINS = """\
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 4096, global_batch: 64}
layout: {tp: 8}
"""


def test_a_comparison_is_of_plans_of_one_kind(tmp_path):
    serves, trains = tmp_path / "serves.yaml", tmp_path / "trains.yaml"
    serves.write_text(ONE_POOL, encoding="utf-8")
    trains.write_text(TRAINS, encoding="utf-8")
    assert "is no serving plan, and the other one is" in refused("compare", serves, trains)


def test_check_options_of_plans_that_train_are_refused(pools):
    assert "seq_len = '4096': is an option for plans that train" in refused("check", pools, "--seq-len", 4096)
    assert "global_batch" in refused("check", pools, "--global-batch", 64)


def test_check_replaces_the_nouns_of_a_plan(pools):
    done = run("check", pools, "--on", "h200-sxm-141gb x 16", "--json")
    assert (done.code, [problem["field"] for problem in done.data["problems"]]) == (1, ["pools"])
    done = run("check", pools, "--model", "llama-3.1-70b", "--json")
    assert {problem["field"] for problem in done.data["problems"]} == {
        "pools.fill.layout.ep",
        "pools.write.layout.ep",
    }


@settings(max_examples=120, deadline=None)
@given(
    text=st.sampled_from(TEXTS),
    kinds=st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_a_damaged_plan_is_checked_or_refused_and_nothing_else(text, kinds, seed):
    for step, kind in enumerate(kinds):
        if len(text) > 1 and ": " in text:
            text = mutated(text, kind, seed + step).decode("utf-8", errors="replace")
    problems = []
    found = attempted(lambda: check_text(text, "damaged.yaml", ImportRequest()).to_json(), problems)
    assert (found is None) == bool(problems)
    assert all(problem.rule and problem.to_json() for problem in problems)
    if found is not None:
        assert json.dumps(found, allow_nan=False)
        assert found["ok"] == all(problem["severity"] != "error" for problem in found["problems"])
