"""Whatever form copies of tokens travel in, a plan computes what one device does and moves the bytes that it should."""

import json

import numpy as np
import pytest
import torch
from covering_plans import told
from dispatch_plans import BY_FORM, CROSSED, TRAVEL_FAULTS
from training_runs import small_run

from meshwright.plans.files.plan_file import load_plan
from meshwright.plans.resolve import resolve
from meshwright.program.expert_dispatch.dispatch_forms import LEGS, exchange_form
from meshwright.program.lowering.plan_parts import planned_exchange
from meshwright.runtime.executor.rank import Job, rank_of
from meshwright.runtime.kernels.token_dispatch import FORMS
from meshwright.runtime.launch.forked_ranks import run_locally
from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import run_case, run_case_with_clipping
from meshwright.runtime.verify.verify_case import micro_batches


def silent(what, part):
    pass


def equal_to_one_device(plan):
    outcome = run_case_with_clipping(plan.trial(), silent)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


def named(plan):
    return f"{plan.model} {told(plan)}"


def form_of(plan):
    program, _ = plan.lowered()
    return exchange_form(program.parts.only.shape, program.stack)


def test_every_form_has_legs_and_a_plan():
    assert FORMS.keys() == LEGS.keys()
    copies = FORMS.keys() - {"bucketed"}  # buckets of tokens have plans of their own
    assert copies == BY_FORM.keys()
    assert {form: form_of(plan) for form, plan in BY_FORM.items()} == {form: form for form in BY_FORM}
    assert {form_of(plan) for plan in CROSSED} == copies - {"flat"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", BY_FORM)
def test_every_form_computes_what_one_device_does(form):
    equal_to_one_device(BY_FORM[form])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", CROSSED, ids=named)
def test_copies_that_go_once_meet_all_else(plan):
    equal_to_one_device(plan)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("fault", TRAVEL_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_on_the_way_is_seen(fault):
    outcome = run_case(fault.plan.trial(), silent, fault.put_in)
    assert fault.is_seen(outcome), outcome


def leg_bytes(plan):
    """Bytes that each form's exchanges move over its legs in a step of all ranks, by axes."""
    trial = plan.trial()

    def work(place, store, tell):
        job = Job(trial.program, trial.model, "fp64", trial.options, 60.0, accelerated=False)
        with rank_of(job, place, store, trial.tensors()) as rank:
            before = len(rank.communicator.log)
            rank.interpreter.step(micro_batches(trial, trial.batches()[0], place.rank))
            found = [(e.axes, e.logical_bytes) for e in rank.communicator.log[before:]]
            everyone = [None] * place.ranks if place.rank == 0 else None
            torch.distributed.gather_object(found, everyone)
            return everyone

    entries = [entry for of_rank in run_locally(work, plan.ranks, 120, silent) for entry in of_rank]
    return {axes: sum(size for of, size in entries if of == axes) for axes in {axes for axes, _ in entries}}


def test_once_moves_less_than_a_copy_for_each_expert_and_nodes_less_than_ranks():
    found = {form: leg_bytes(plan) for form, plan in BY_FORM.items()}
    copies, ranks = found["flat"][("ep",)], found["once-per-rank"][("ep",)]
    nodes = found["hierarchical"]
    assert ranks < copies
    assert nodes["ep_inside",] == ranks
    assert nodes["ep_across",] < ranks
    assert ("ep",) not in nodes


@pytest.mark.slow
def test_local_ranks_train_a_plan_of_small_nodes_as_one_rank_does(tmp_path):
    alone = small_run(tmp_path / "alone", family="qwen3_moe").train("out", steps=2)
    nodes = {"like": "dgx-h100", "devices": 2, "scaleup_domain": 2}
    cluster = {"name": "pairs", "pools": [{"count": 4, "device": "h100-sxm-80gb", "node": nodes}]}
    (tmp_path / "pairs.yaml").write_text(json.dumps(cluster), encoding="utf-8")
    run = small_run(
        tmp_path / "nodes",
        family="qwen3_moe",
        model=str(tmp_path / "nodes" / "config.json"),
        cluster=str(tmp_path / "pairs.yaml"),
        stack="megatron-bridge",
        layout={"dp_shard": 4, "ep": 4},
        sharding="zero1",
    )
    resolved = resolve(load_plan(run.path))
    setting = resolved.setting
    form = planned_exchange(resolved.long, setting.model, setting.cluster, setting.workload, setting.stack)
    assert form == "hierarchical"
    np.testing.assert_allclose(run.train("out", steps=2).outcome.losses, alone.outcome.losses, rtol=1e-12)
