"""Replicas that are lost and join while a run goes on in the same processes: its losses are those without faults."""

import os
import signal
import stat

import pytest

pytest.importorskip("torch")

from changing_runs import ChangingRun, largest_difference
from training_runs import SEQ_LEN, small_run

TOLERANCE = 1e-9
"""Relative; fp64 leaves about 1e-15, since sums are taken in another order."""


def replicas(folder, count, batch=6, **layout):
    ranks = count
    for degree in layout.values():
        ranks *= degree
    return ChangingRun(
        small_run(
            folder,
            ranks=ranks,
            layout={"dp_replicate": count, **layout},
            workload={"seq_len": SEQ_LEN, "global_batch": batch},
            pipeline={"micro_batch": max(1, batch // count // 2)},
            **({"sharding": "zero1"} if "dp_shard" in layout else {}),
        )
    )


def check_steps(run):
    """Every step is in the log once, with the losses and norms of a run without faults."""
    lines = run.steps
    assert [line["step"] for line in lines] == list(range(len(lines)))
    losses, norms = run.reference()
    assert largest_difference([line["loss"] for line in lines], losses) <= TOLERANCE
    assert largest_difference([line["grad_norm"] for line in lines], norms) <= TOLERANCE


def test_three_replicas_lose_one_and_another_joins(tmp_path):
    run = replicas(tmp_path, 3).begin()
    run.wait_steps(3)
    kept = run.children()[:2]
    run.kill(2)
    run.wait_steps(2)
    assert run.children() == kept
    run.join()
    run.wait_steps(2)
    first, joined = run.stop()
    assert [change["ranks"] for change in first["members"]] == [2, 3]
    begin = joined["first_step"]
    assert begin == first["members"][1]["step"]
    assert joined["losses"] == first["losses"][begin:]
    (fault,) = first["faults"]
    assert (fault["kind"], fault["rank"], fault["action"]) == ("kill", 2, "shrunk")
    assert "SIGKILL" in fault["evidence"]
    assert fault["resumed_s"] > 0
    assert all(os.path.exists(change["plan"]) for change in first["members"])
    assert stat.S_IMODE((run.folder / "token").stat().st_mode) == 0o600
    check_steps(run)


@pytest.mark.slow
def test_eight_replicas_become_five_and_eight_again(tmp_path):
    run = replicas(tmp_path, 8, batch=24).begin()
    run.wait_steps(3)
    run.kill(1, 4, 6)
    run.wait_steps(3)
    run.join()
    run.wait_steps(3)
    first, _ = run.stop()
    assert first["members"][-1]["ranks"] == 8
    assert {change["ranks"] for change in first["members"]} >= {5, 8}
    assert {fault["action"] for fault in first["faults"]} == {"shrunk"}
    check_steps(run)


@pytest.mark.slow
def test_a_lost_first_rank_leaves_no_gap_in_the_log(tmp_path):
    run = replicas(tmp_path, 3).begin()
    run.wait_steps(3)
    run.kill(0)
    run.wait_steps(2)
    run.kill(0)
    run.wait_steps(2)
    (first,) = run.stop()
    assert [change["ranks"] for change in first["members"]] == [2, 1]
    check_steps(run)


@pytest.mark.slow
@pytest.mark.parametrize("axis", ["tp", "pp", "dp_shard"])
def test_replicas_of_several_ranks(axis, tmp_path):
    run = replicas(tmp_path, 2, batch=8, **{axis: 2}).begin()
    run.wait_steps(3)
    run.kill(1)
    run.wait_steps(2)
    run.join()
    run.wait_steps(2)
    first, _ = run.stop()
    assert [change["ranks"] for change in first["members"]] == [2, 4]
    check_steps(run)


@pytest.mark.slow
def test_ranks_that_joined_may_be_lost_too(tmp_path):
    run = replicas(tmp_path, 3).begin()
    run.wait_steps(2)
    run.kill(0, 1)
    run.join()
    run.wait_steps(2)
    run.kill(0, of=1)
    run.wait_steps(2)
    first, _ = run.stop()
    assert first["members"][-1]["ranks"] == 2
    check_steps(run)


@pytest.mark.slow
def test_a_silent_command_is_lost_and_its_ranks_end(tmp_path):
    run = replicas(tmp_path, 3).begin()
    run.wait_steps(2)
    run.kill(1)
    run.join()
    run.wait_steps(2)
    run.silence(of=1)
    run.wait_steps(2)
    first, silent = run.stop()
    assert [change["ranks"] for change in first["members"]] == [2, 3, 2]
    assert "no heartbeat" in first["faults"][1]["evidence"]
    assert silent["type"] == "RunError"
    check_steps(run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "hang", "nan", "corrupt"])
def test_a_rank_at_fault_is_taken_out_and_its_fault_does_not_come_again(kind, tmp_path):
    run = replicas(tmp_path, 3)
    run.options |= {"inject": (f"{kind}:rank=1,step=3",), "hang_s": 4.0}
    run.begin(8)
    (first,) = run.end()
    assert [change["ranks"] for change in first["members"]] == [2]
    (fault,) = first["faults"]
    assert (fault["kind"], fault["rank"], fault["step"], fault["action"]) == (kind, 1, 3, "shrunk")
    check_steps(run)


@pytest.mark.slow
def test_the_only_copy_of_states_ends_the_run_with_the_reason(tmp_path):
    run = replicas(tmp_path, 1, tp=2).begin()
    run.wait_steps(2)
    os.kill(run.children()[1], signal.SIGKILL)
    (answer,) = run.end()
    assert answer["type"] == "FaultStopError"
    assert "held the only copy of a state" in answer["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        {"every": 3, "outer": {"nesterov": {"lr": 0.7}}},
        {"every": 4, "fragments": 2, "delay": 3, "merge": 0.5},
    ],
)
def test_islands_go_on_and_others_join(entry, tmp_path):
    synchronise = [{"state": "parameter", "over": "dp_replicate", **entry}]
    run = ChangingRun(
        small_run(
            tmp_path,
            ranks=3,
            layout={"dp_replicate": 3},
            workload={"seq_len": SEQ_LEN, "global_batch": 6},
            pipeline={"micro_batch": 1},
            synchronise=synchronise,
        )
    ).begin()
    run.wait_steps(5)
    kept = run.children()[1:]
    run.kill(0)
    assert run.children() == kept
    run.wait_steps(5)
    run.join()
    run.wait_steps(5)
    first, _ = run.stop()
    assert [change["ranks"] for change in first["members"]] == [2, 3]
    lines = run.steps
    assert [line["step"] for line in lines] == list(range(len(lines)))
    last = next(line for line in reversed(lines) if "loss_islands" in line)
    assert len(last["loss_islands"]) == 3
