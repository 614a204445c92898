"""Runs that go on after injected faults: the losses of a healthy run, and what is told of the faults."""

import json
from threading import Thread
from time import sleep

import pytest

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.errors import InputError, RunError
from meshwright.runtime.launch.network_address import network_address
from meshwright.runtime.recovery.fault_stop import FaultStopError
from meshwright.runtime.recovery.members.rendezvous_store import ServerClient
from meshwright.runtime.recovery.members.run_token import token_to_join
from meshwright.runtime.recovery.returned_devices import offer_devices

STEPS = 6
WATCHED = {"checkpoint_every": 2, "hash_every": 2, "hang_s": 4.0}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("recovery"), ranks=2, layout={"dp_replicate": 2})


@pytest.fixture(scope="module")
def healthy(replicas):
    return replicas.train("healthy", STEPS).outcome.losses


def of(outcome):
    return [(fault.kind, fault.rank, fault.step, fault.action) for fault in outcome.faults]


def test_a_restarted_run_has_the_losses_of_a_healthy_one(replicas, healthy):
    inject = ("kill:rank=1,step=3", "nan:rank=0,step=4")
    found = replicas.train("restarted", STEPS, on_fault="restart", inject=inject, **WATCHED)
    outcome = found.outcome
    assert of(outcome) == [("kill", 1, 3, "restarted"), ("nan", 0, 4, "restarted")]
    assert outcome.losses == healthy
    assert all(fault.detected_s >= 0 and fault.resumed_s >= 0 for fault in outcome.faults)
    assert outcome.members == ()
    data = found.to_json()
    assert data["members"] == []
    assert [fault["kind"] for fault in data["faults"]] == ["kill", "nan"]
    steps = [line["step"] for line in replicas.metrics("restarted") if "loss" in line]
    assert steps == list(range(STEPS))


def test_a_healthy_run_has_no_faults_and_no_changes(replicas, healthy):
    found = replicas.train("watched", STEPS, on_fault="restart", **WATCHED)
    assert (found.outcome.faults, found.outcome.members) == ((), ())
    assert found.outcome.losses == healthy


def test_without_a_policy_the_run_stops_and_names_the_rank(replicas):
    with pytest.raises(FaultStopError, match="rank 1 was ended by SIGKILL") as caught:
        replicas.train("stopped", STEPS, inject=("kill:rank=1,step=2",), **WATCHED)
    (fault,) = caught.value.details["faults"]
    assert (fault["kind"], fault["rank"], fault["step"], fault["action"]) == ("kill", 1, 2, "stopped")
    assert fault["resumed_s"] is None
    assert caught.value.details["members"] == []
    assert caught.value.exit_code == 1
    json.dumps(dict(caught.value.details))


def test_a_rank_that_hangs_is_named_with_what_others_wait_for(replicas):
    with pytest.raises(FaultStopError) as caught:
        replicas.train("hanging", STEPS, inject=("hang:rank=0,step=3",), **WATCHED)
    (fault,) = caught.value.details["faults"]
    assert (fault["kind"], fault["rank"], fault["step"]) == ("hang", 0, 3)
    assert "waiting for others: rank 1 in" in fault["evidence"]


def test_a_replanned_run_keeps_batch_and_losses(replicas, healthy):
    outcome = replicas.train(
        "replanned", STEPS, on_fault="replan", inject=("kill:rank=0,step=3",), **WATCHED
    ).outcome
    assert of(outcome) == [("kill", 0, 3, "replanned")]
    assert outcome.losses == pytest.approx(healthy, rel=1e-9)
    (change,) = outcome.members
    folder = replicas.path.parent / "replanned"
    assert (change.step, change.ranks, change.plan) == (2, 1, str(folder / "plan.yaml"))
    assert (folder / "plan-2.yaml").exists()


def test_a_device_that_comes_back_is_planned_for(replicas, healthy):
    folder, given = replicas.path.parent / "returned", []

    def come_back():
        while not (folder / "cluster-1.yaml").exists():
            sleep(0.02)
        address = network_address((folder / "address").read_text(encoding="ascii").strip(), "join")
        given.append(offer_devices(ServerClient(address, *token_to_join(folder))))

    thread = Thread(target=come_back)
    thread.start()
    outcome = replicas.train(
        "returned", STEPS, on_fault="replan", inject=("kill:rank=1,step=1",), **WATCHED
    ).outcome
    thread.join()
    assert given == [1]
    assert outcome.losses == pytest.approx(healthy, rel=1e-9)
    assert not outcome.stopped
    assert not (folder / "address").exists()


def test_a_loss_that_is_not_finite_on_all_ranks_ends_the_run_under_every_policy(replicas):
    with pytest.raises(RunError, match="nothing was updated"):
        replicas.train("diverged", STEPS, lr=1e29, clip=0.0, on_fault="restart", **WATCHED)


def test_ranks_that_the_plan_does_not_have_are_refused_before_anything_starts(replicas):
    with pytest.raises(InputError, match="the plan has 2 ranks, 0 to 1"):
        replicas.train("refused", STEPS, inject=("kill:rank=2,step=0",))
    assert not (replicas.path.parent / "refused").exists()
