"""Plans with states on the hosts: asked for, or found where nothing fits with all of them on the devices."""

import pytest
from planning_questions import header

from meshwright.errors import InfeasibleError
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer


def plan(stack, *keep, model="llama-2-7b", cluster="a100-sxm-80gb x 1"):
    return answer(PlanRequest(header(model, cluster, batch=8, stack=stack), keep, top=2))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("stack", ["deepspeed", "megatron-core", "generic"])
def test_what_fits_on_no_device_gets_its_optimizer_states_on_the_host(stack):
    found = plan(stack)
    for proposal in found.proposals:
        assert proposal.plan.offload.to_data()["optimizer"] == "all"
        assert proposal.plan.offload.parameters is None
        memory = proposal.report.memory_bytes
        assert memory["optimizer"] == 0
        assert memory["host"] >= 12 * memory["parameters"] / 2
        assert proposal.report.fits
    assert {key.key: key.values for key in found.space.searched}["offload.optimizer"] == ("all",)


def test_a_kept_share_is_the_only_one():
    best = plan("generic", "offload.optimizer=0.75", "offload.parameters=none").proposals[0]
    assert best.plan.offload.optimizer == 0.75
    assert 0 < best.report.memory_bytes["optimizer"] < best.report.memory_bytes["host"]


def test_a_question_that_says_none_gets_none():
    with pytest.raises(InfeasibleError, match="No plan of llama-2-7b fits"):
        plan("generic", "offload.optimizer=none", "micro_batch=1")


@pytest.mark.slow
def test_a_stack_without_states_on_the_host_finds_nothing():
    with pytest.raises(InfeasibleError, match="No plan of llama-2-7b fits"):
        plan("nemo")


def test_what_fits_stays_on_the_devices():
    assert plan("generic", cluster="b200 x 1").proposals[0].plan.offload is None
