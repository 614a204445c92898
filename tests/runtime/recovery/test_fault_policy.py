"""The answer to faults: by the policy, until the same fault has come too often."""

import pytest

from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.recovery.fault_policy import FaultPolicy


def fault(kind="kill", rank=1, step=3):
    return Fault(kind=kind, rank=rank, step=step, evidence="it was seen")


@pytest.mark.parametrize(
    ("policy", "action"),
    [("stop", "stopped"), ("restart", "restarted"), ("replan", "replanned"), ("shrink", "shrunk")],
)
def test_the_policy_names_the_action(policy, action):
    found = FaultPolicy(policy, 3).answered([fault(), fault(rank=2)])
    assert [one.action for one in found] == [action, action]


def test_the_same_fault_at_the_same_step_ends_the_run_after_the_restarts():
    policy = FaultPolicy("restart", 2)
    actions = [policy.answered([fault()])[0].action for _ in range(3)]
    assert actions == ["restarted", "restarted", "stopped"]


def test_other_steps_ranks_and_kinds_count_by_themselves():
    policy = FaultPolicy("restart", 1)
    for one in (fault(), fault(step=4), fault(rank=2), fault(kind="nan")):
        assert policy.answered([one])[0].action == "restarted"
    assert policy.answered([fault(step=4)])[0].action == "stopped"


def test_without_restarts_the_first_fault_ends_the_run():
    assert FaultPolicy("restart", 0).answered([fault()])[0].action == "stopped"
