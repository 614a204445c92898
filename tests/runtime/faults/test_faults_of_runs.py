"""Injected faults of small runs on forked ranks, and what is found."""

import json

import pytest
from training_runs import small_run

from meshwright.runtime.recovery.supervise import FaultStopError

PAIR = {"ranks": 2, "layout": {"dp_replicate": 2}}
THREE = {
    "ranks": 3,
    "layout": {"dp_replicate": 3},
    "workload": {"seq_len": 24, "global_batch": 6},
    "pipeline": {"micro_batch": 1},
}
SHARDED = {"ranks": 2, "layout": {"dp_shard": 2}}
PIPELINE = {"ranks": 2, "layout": {"pp": 2}, "pipeline": {"schedule": {"name": "1f1b"}}}
TENSORS = {"ranks": 2, "layout": {"tp": 2}}


def raised(folder, plan, inject, steps=8, **wishes):
    """Kind, rank and step of the faults that end a run, and the run."""
    run = small_run(folder, **plan)
    with pytest.raises(FaultStopError) as caught:
        run.train("run", steps, inject=(inject,), hash_every=4, **wishes)
    faults = caught.value.details["faults"]
    return sorted((fault["kind"], fault["rank"], fault["step"]) for fault in faults), run


def reported(folder, plan, inject, steps, hash_every):
    """The faults that a run reports, which are also in its log."""
    run = small_run(folder, **plan)
    outcome = run.train("run", steps, inject=(inject,), hash_every=hash_every).outcome
    assert len(outcome.losses) == steps
    found = [fault.to_json() for fault in outcome.faults]
    assert [line["fault"] for line in run.metrics("run") if "fault" in line] == found
    return found


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("plan", "step"),
    [
        (PAIR, 0),
        (PAIR, 5),
        (SHARDED | {"sharding": "zero2"}, 4),
        (SHARDED | {"sharding": "zero3"}, 4),
        (PIPELINE, 4),
        (TENSORS, 4),
    ],
)
@pytest.mark.parametrize("kind", ["nan", "corrupt"])
def test_a_wrong_gradient_names_its_rank_before_it_is_summed(kind, plan, step, tmp_path):
    found, run = raised(tmp_path, plan, f"{kind}:rank=1,step={step}")
    assert found == [(kind, 1, step)]
    assert [line["step"] for line in run.metrics("run")[1:]] == list(range(step))
    dump = json.loads((tmp_path / "run" / "faults" / "rank-1.json").read_text())
    assert dump["steps"][-1]["step"] == step - 1 if step else not dump["steps"]
    assert any(of["operations"] for of in dump["collectives"]) == bool(step)
    assert f"{kind} of rank 1 at step {step}" in dump["reason"]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("plan", "rank", "named"),
    [(THREE, 2, [2]), (PAIR, 1, [0, 1]), (TENSORS, 0, [0, 1])],
    ids=["majority", "two copies", "vectors of tp"],
)
def test_a_flipped_bit_of_a_copy_names_the_ranks_and_the_first_step(plan, rank, named, tmp_path):
    found, run = raised(tmp_path, plan, f"diverge:rank={rank},step=5", steps=20)
    assert found == [("diverge", rank, 5) for rank in named]
    assert run.metrics("run")[-1]["step"] == 7, "copies are compared behind every fourth step"


def test_no_checkpoint_is_saved_of_copies_that_differ(tmp_path):
    found, _ = raised(tmp_path, PAIR, "diverge:rank=1,step=1", checkpoint_every=1)
    assert [step for _, _, step in found] == [1, 1]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000001"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("in_background", [False, True])
def test_a_full_disk_names_its_rank_and_leaves_the_checkpoint_before(in_background, tmp_path):
    plan = SHARDED | {"sharding": "zero1"}
    wishes = {"checkpoint_every": 2, "checkpoint_async": in_background}
    found, _ = raised(tmp_path, plan, "full:rank=1,step=2", **wishes)
    assert found == [("full", 1, 3)]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000002"]


def test_a_spike_is_told_and_the_run_goes_on(tmp_path):
    (fault,) = reported(tmp_path, PIPELINE, "spike:step=6,factor=5", 9, 4)
    assert (fault["kind"], fault["rank"], fault["step"]) == ("spike", None, 6)
    assert fault["detected_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PAIR, PIPELINE])
def test_a_slow_rank_is_told(plan, tmp_path):
    (fault,) = reported(tmp_path, plan, "slow:rank=1,step=8,factor=20", 24, 100)
    assert (fault["kind"], fault["rank"]) == ("slow", 1)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PAIR, PIPELINE])
def test_a_slow_link_is_told(plan, tmp_path):
    (fault,) = reported(tmp_path, plan, "link:rank=1,peer=0,step=12,factor=50", 24, 10)
    assert (fault["kind"], fault["rank"], fault["peer"]) == ("link", 0, 1)


def test_looking_for_faults_changes_no_bit(tmp_path):
    run = small_run(tmp_path, **SHARDED, sharding="zero3")
    often = run.train("often", 4, hash_every=1)
    never = run.train("never", 4, hash_every=0)
    assert often.outcome.losses == never.outcome.losses
    assert often.outcome.norms == never.outcome.norms
    for shard in often.outcome.checkpoint.glob("rank-*"):
        assert (never.outcome.checkpoint / shard.name).read_bytes() == shard.read_bytes()
    assert not any("fault" in line for line in run.metrics("often"))
    assert not (tmp_path / "often" / "faults").exists()
