"""``meshwright verify`` from the plan file to the report."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_runs import TINY, plan_text, refused, run, write

FURTHER = TINY | {
    "model_type": "glm4_moe",
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "num_nextn_predict_layers": 1,
    "train_nextn_predict_layers": True,
}
"""A model with a layer that predicts further tokens."""
KEYS = (
    *("equal", "max_relative_error", "parameter", "plans", "combinations_covered"),
    *("combinations_not_covered", "features", "bound", "proves"),
)


def plan_file(folder, **changes):
    return write(folder / "plan.yaml", plan_text(**changes))


def test_a_plan_is_proven(tmp_path):
    done = run("verify", plan_file(tmp_path), "--json")
    assert done.code == 0, done
    assert set(KEYS) <= done.data.keys()
    assert done.data["equal"] is True
    assert 0 < done.data["max_relative_error"] < 1e-12
    (plan,) = done.data["plans"]
    assert plan["ranks"] == 4
    assert plan["features"] == ["dp_shard", "tp", "micro_batches", "micro_batch"]
    assert len(done.data["combinations_covered"]) == 4
    assert done.data["combinations_not_covered"] == []


def test_two_plans_are_compared(tmp_path):
    path = plan_file(tmp_path, layout="{dp_replicate: 8}", sharding="none")
    done = run("verify", path, "--against", "data-parallel")
    assert done.code == 0, done
    assert "equal to data-parallel" in done.out
    entry = "[{state: parameter, over: dp_replicate, every: 100}]"
    other = write(
        tmp_path / "other.yaml", plan_text(layout="{dp_replicate: 8}", sharding="none", synchronise=entry)
    )
    done = run("verify", other, "--against", path, "--json")
    assert done.code == 1, done
    assert done.data["equal"] is False
    assert done.data["max_relative_error"] > 1e-9


@pytest.mark.parametrize(
    ("against", "hint"),
    [("data-paralel", "did you mean data-parallel?"), ("other.yaml", "data-parallel, or the path of a plan")],
)
def test_another_plan_that_is_not_there_is_a_problem_of_against(tmp_path, against, hint):
    done = run("verify", plan_file(tmp_path), "--against", against, "--json")
    assert done.code == 2, done
    (problem,) = done.data["problems"]
    assert (problem["field"], problem["value"], problem["suggestion"]) == ("against", against, hint)


def test_problems_of_another_plan_name_the_option(tmp_path):
    other = write(tmp_path / "other.yaml", plan_text(layout="{tp: 0}"))
    done = run("verify", plan_file(tmp_path), "--against", other, "--json")
    assert done.code == 2, done
    assert {one["field"].partition(".")[0] for one in done.data["problems"]} == {"against"}


@pytest.mark.slow
def test_a_plan_of_a_model_that_predicts_further_tokens_is_proven(tmp_path):
    model = write(tmp_path / "further.json", json.dumps(FURTHER))
    changes = {"layout": "{pp: 2, dp_shard: 2, ep: 2, tp: 2}", "model": model}
    done = run("verify", plan_file(tmp_path, **changes), "--json")
    assert done.code == 0, done
    assert "next_tokens" in done.data["features"]
    assert 0 < done.data["max_relative_error"] < 1e-12


def test_fewer_ranks_leave_combinations_uncovered_and_say_so(tmp_path):
    done = run("verify", plan_file(tmp_path), "--ranks", "2")
    assert done.code == 0, done
    assert "not covered: dp_shard + tp + micro_batches" in done.out
    assert "proves Meshwright's own executor" in done.out
    assert "--check=dry" in done.out
    assert done.err == ""


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": "FURTHER", "sharding": "zero3"}, "gather"),
        ({"workload": "{seq_len: 4096, global_batch: 64, task: lora}"}, "workload.task"),
        (
            {
                "workload": "{seq_len: 4096, global_batch: 64, optimizer: muon}",
                "offload": "{parameters: all}",
            },
            "offload.parameters",
        ),
    ],
)
def test_what_the_runtime_does_not_run_is_refused_by_name(tmp_path, changes, field):
    if changes.get("model") == "FURTHER":
        changes = changes | {"model": write(tmp_path / "further.json", json.dumps(FURTHER))}
    done = run("verify", plan_file(tmp_path, **changes), "--json")
    assert done.code == 2
    (problem,) = [problem for problem in done.data["problems"] if problem["field"] == field]
    assert problem["suggestion"]


@pytest.mark.parametrize("ranks", ["0", "17", "-1"])
def test_a_number_of_ranks_out_of_bounds_is_refused(tmp_path, ranks):
    assert f"ranks = {ranks}" in refused("verify", plan_file(tmp_path), "--ranks", ranks)


def children_of(pid):
    """Processes whose parent is ``pid``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        if status and int(status.rpartition(")")[2].split()[1]) == pid:
            found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes from /proc")
def test_an_interrupt_leaves_no_processes(tmp_path):
    start = "from meshwright.cli.main import main; main()"
    command = [sys.executable, "-c", start, "verify", str(plan_file(tmp_path))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ranks, end = [], time.monotonic() + 60
    while len(ranks) < 4 and time.monotonic() < end and process.poll() is None:
        ranks = children_of(process.pid)
        time.sleep(0.01)
    assert len(ranks) == 4
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) not in (0, 1, 2)
    assert not [pid for pid in ranks if Path(f"/proc/{pid}").exists()]
