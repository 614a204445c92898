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
