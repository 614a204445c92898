"""What is only doubtful is told beside the answer: on standard error, and as ``remarks`` in JSON."""

import pytest
from command_runs import plan_text, run, write

from meshwright import api
from meshwright.verbs.predict.predict_plan import expected_time

LONG = {"workload": "{seq_len: 262144, global_batch: 8}", "pipeline": "{schedule: 1f1b}"}
TOO_LONG = "seq_len 262144 > max_positions 131072 of the model"


@pytest.fixture
def long_plan(tmp_path):
    return write(tmp_path / "long.yaml", plan_text(**LONG))


@pytest.fixture
def plan_file(tmp_path):
    """A plan on a stack and device whose runs were seen."""
    return write(tmp_path / "plan.yaml", plan_text(cluster="b200 x 8"))


def test_predict_says_what_check_warns_of(long_plan):
    shown, data = run("predict", long_plan), run("predict", long_plan, "--json").data
    assert shown.err.startswith("Remark: ")
    assert TOO_LONG in shown.err
    assert TOO_LONG not in shown.out
    assert TOO_LONG in data["remarks"][0]


def test_verify_says_what_check_warns_of(long_plan):
    data = run("verify", long_plan, "--ranks", 1, "--json").data
    assert [TOO_LONG in remark["rule"] for remark in data["remarks"]] == [True]


def test_a_stack_without_runs_is_a_remark(tmp_path):
    data = run("predict", write(tmp_path / "plan.yaml", plan_text()), "--json").data
    (remark,) = data["remarks"]
    assert remark.startswith("No runs of megatron-core like this were seen: ±")
    assert data["interval"]["advice"] == remark


def test_a_plan_without_doubts_has_no_remarks(plan_file):
    assert run("predict", plan_file, "--json").data["remarks"] == []


def test_a_degree_that_moved_unnamed_is_told_and_a_named_one_is_not(plan_file):
    moved = run("predict", plan_file, "--set", "pp=2", "--json").data["remarks"]
    assert len(moved) == 1
    assert moved[0].startswith("layout.dp_shard = 2: was 4: ")
    named = ("--set", "pp=2", "--set", "dp_shard=2")
    assert run("predict", plan_file, *named, "--json").data["remarks"] == []


def test_the_time_of_a_step_is_told_before_it_is_run(plan_file):
    (told,) = expected_time(api.load(plan_file))
    assert told.startswith("Predicted: ")
    assert told.endswith(" per step on b200 x 8.")


def test_a_step_that_only_playing_would_time_is_not_timed(tmp_path):
    usual = plan_text(
        workload="{seq_len: 4096, global_batch: 2097152}", layout="{pp: 2, dp_replicate: 4}", sharding="none"
    )
    long = run("describe", write(tmp_path / "usual.yaml", usual), "--long").out
    endless = write(tmp_path / "endless.yaml", long.replace("main", "other"))  # which no short form can say
    assert run("predict", endless).code == 2
    assert expected_time(api.load(endless)) == []


@pytest.mark.parametrize(
    ("count", "remark"),
    [
        (4, "4 devices leave 4 of the last node's 8 devices without work; 8 devices fill whole nodes"),
        (
            12,
            "12 devices leave 4 of the last node's 8 devices without work; 8 or 16 devices fill whole nodes",
        ),
        (16, ""),
    ],
)
def test_a_count_that_does_not_fill_its_nodes_is_a_remark_of_plan(count, remark):
    question = ("plan", "llama-3.2-1b", "--on", f"{count}xH100", "--seq-len", "2k", "--global-batch", 48)
    kept = ("--keep", "tp=1", "--keep", "recompute=none", "--keep", "sharding=zero1")
    shown, data = run(*question, *kept), run(*question, *kept, "--json").data
    assert (f"Remark: {remark}\n" in shown.err) == bool(remark)
    assert "fill whole nodes" not in shown.out
    assert all(one["predict"]["remarks"] == ([remark] if remark else []) for one in data["plans"])
