"""``run --emulate``: the form of its answer, its trace, and what it refuses."""

import json

import pytest

pytest.importorskip("torch")

from command_runs import is_finite, plan_text, refused, run, write

PIPELINE = {
    "cluster": "h100-sxm-80gb x 16",
    "workload": "{seq_len: 4096, global_batch: 8}",
    "layout": "{pp: 2, dp_shard: 4, tp: 2}",
    "stack": "meshwright",
    "pipeline": "{schedule: 1f1b}",
    "recompute": "full",
}


@pytest.fixture
def plan_file(tmp_path):
    return write(tmp_path / "plan.yaml", plan_text(**PIPELINE))


def test_an_emulated_step_is_a_report_beside_the_simulated_one(plan_file, tmp_path):
    trace = tmp_path / "trace.json"
    done = run("run", plan_file, "--emulate", "--trace", trace, "--json")
    assert (done.code, done.err) == (0, "")
    data, how = done.data, done.data["emulation"]
    assert (data["kind"], data["unit"]) == ("emulated", "step")
    assert data["origin"]["step_time_s"].startswith("emulated")
    assert is_finite(data)
    assert sum(data["breakdown_s"].values()) == pytest.approx(data["step_time_s"])
    assert how["difference"] == pytest.approx(data["step_time_s"] / how["simulated_step_time_s"] - 1)
    assert how["late_starts"] <= how["starts"]
    assert [rank["rank"] for rank in how["ranks"]] == [0, 1]
    for rank in how["ranks"]:
        assert rank["peak_activation_bytes"] == rank["ledger_activation_bytes"] > 0
        assert rank["busy_s"] + rank["idle_s"] == pytest.approx(data["step_time_s"])
    written = json.loads(trace.read_text())
    assert written["otherData"]["origin"] == "emulated"
    assert written["otherData"]["step_time_s"] == pytest.approx(data["step_time_s"])
    simulated = tmp_path / "simulated.json"
    run("predict", plan_file, "--trace", simulated)
    assert _names(written) == _names(json.loads(simulated.read_text()))


ISLANDS = {
    "model": "smollm2-135m",
    "cluster": "h100-sxm-80gb x 2",
    "workload": "{seq_len: 1024, global_batch: 4}",
    "layout": "{dp_replicate: 2}",
    "stack": "meshwright",
    "synchronise": "[{state: parameter, over: dp_replicate, every: 4, delay: 2, compress: {quantise: int8}}]",
}


def test_a_round_is_emulated_where_islands_exchange_between_steps(tmp_path):
    file = write(tmp_path / "plan.yaml", plan_text(**ISLANDS))
    data, predicted = (
        run(*words, "--json").data for words in (("run", file, "--emulate", "--ranks", 2), ("predict", file))
    )
    how = data["emulation"]
    assert (data["unit"], data["steps_per_round"]) == ("round", 4)
    assert (how["steps"], how["steps_before"]) == (4, 4)
    assert how["simulated_step_time_s"] == pytest.approx(predicted["step_time_s"])
    assert how["difference"] >= -1e-9
    assert sum(data["breakdown_s"].values()) == pytest.approx(data["step_time_s"])
    assert data["breakdown_s"]["codec"] == pytest.approx(predicted["breakdown_s"]["codec"])
    assert data["breakdown_s"]["dp"] >= -1e-12
    (row,), (expected,) = data["synchronise"], predicted["synchronise"]
    for key in ("exchanges_per_step", "encoded_bytes", "sent_bytes_per_step", "exchange_s"):
        assert row[key] == pytest.approx(expected[key])
    assert "a mean of 4 steps behind 4" in data["origin"]["step_time_s"]
    assert data["origin"]["synchronise"].startswith("emulated: exposed time")


def test_people_read_how_many_steps_were_timed(tmp_path):
    done = run("run", write(tmp_path / "plan.yaml", plan_text(**ISLANDS)), "--emulate")
    assert done.code == 0
    assert "per step, in the mean of 4 (emulated, not measured)" in done.out
    assert "4 steps timed behind 4 others" in done.out
    assert "Exchanges between replicas" in done.out


def test_a_period_with_a_rule_is_emulated_at_its_base(tmp_path):
    rule = "[{state: parameter, over: dp_replicate, every: {qsr: {base: 3, alpha: 0.0175}}}]"
    file = write(tmp_path / "plan.yaml", plan_text(**ISLANDS | {"synchronise": rule}))
    data = run("run", file, "--emulate", "--json").data
    assert (data["emulation"]["steps"], data["steps_per_round"]) == (3, None)
    assert data["origin"]["synchronise"].endswith("the period of a rule is its base")


def test_a_round_that_takes_too_long_is_refused_with_its_steps(tmp_path):
    file = write(tmp_path / "plan.yaml", plan_text(**ISLANDS))
    assert "emulating 8 steps takes" in refused("run", file, "--emulate", "--limit", "0.001")


def _names(trace):
    """What the events are, whatever their times."""
    return sorted(
        (e["ph"], e["name"], e["pid"], e.get("tid", -1)) for e in trace["traceEvents"] if e["ph"] != "C"
    )


def test_people_read_that_nothing_was_measured(plan_file):
    done = run("run", plan_file, "--emulate")
    assert done.code == 0
    assert "emulated, not measured" in done.out
    assert "2 processes for 16 ranks" in done.out


def test_what_can_not_be_emulated_is_refused_by_name(plan_file, tmp_path):
    assert "one process for each of 2 pipeline ranks" in refused("run", plan_file, "--emulate", "--ranks", 1)
    assert "--limit" in refused("run", plan_file, "--emulate", "--limit", "0.001")
    both = refused("run", plan_file, "--emulate", "--limit", "-1", "--ranks", 99)
    assert "limit = -1.0: must be a number of seconds above 0. Suggestion: --limit 600" in both
    assert "ranks = 99: " in both
    assert both.endswith(("--ranks 16\n", "--limit 600\n"))
    assert "--ranks 16" in both
    assert "add --emulate" in refused("run", plan_file, "--ranks", 2)
