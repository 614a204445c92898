"""Lower bounds that are cheap for very many plans: below what is evaluated, and near enough to it to be of use."""

import numpy as np
import pytest
from coarse_bounds_of_plans import coarse_bounds
from lattice_plans import MODELS
from stacks_of_any_model import stack_of_any_model

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.lower_bounds.state_memory import state_memory_bound
from meshwright.cost.lower_bounds.tight_step_time import tight_bounds
from meshwright.model.load import load_model
from meshwright.plans.arrays.host_states import HOST_COLUMNS
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice
from meshwright.search.space.legal_plans import divisors, enumerate_space
from meshwright.search.space.searched_schedules import all_schedules, usual_schedules
from meshwright.workload.workload import Workload

ROUNDED = 1 + 1e-9
SOME = 100
STACKS = ("generic", "megatron-core", "meshwright", "megatron-zero-bubble")


def sample(model, stack, devices=16, every=False, count=SOME):
    cluster = load_cluster(f"h100-sxm-80gb x {devices}")
    setting = Setting.of(model, cluster, Workload(seq_len=2048, global_batch=64), stack_of_any_model(stack))
    schedules = all_schedules(setting.stack, divisors(devices)) if every else usual_schedules(setting.stack)
    plans = enumerate_space(setting, {}, schedules).plans
    return plans.take(np.random.default_rng(0).permutation(len(plans))[:count]), setting


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("count", [SOME, pytest.param(10 * SOME, marks=pytest.mark.slow)])
@pytest.mark.parametrize("every", [False, True], ids=["usual", "all schedules"])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", MODELS)
def test_no_plan_takes_or_holds_less_than_its_bounds(model, stack, every, count):
    plans, setting = sample(MODELS[model], stack, every=every, count=count)
    scores, floor = evaluate(plans, setting), coarse_bounds(plans, setting)
    assert (floor.step_s <= scores.step_s * ROUNDED).all()
    assert (floor.total_bytes <= scores.total_bytes * ROUNDED).all()
    assert (floor.step_s > 0).all()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("shares", [("all", "none"), (0.4, 0.7), ("all", "all")], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_no_plan_with_states_on_the_hosts_takes_or_holds_less_either(model, shares):
    plans, setting = sample(MODELS[model], "generic")
    for column, share in zip(HOST_COLUMNS, shares, strict=True):
        plans = plans.with_choice(column, share)
    usual, scores = evaluate(sample(MODELS[model], "generic")[0], setting), evaluate(plans, setting)
    floor, states, tight = (
        coarse_bounds(plans, setting),
        state_memory_bound(plans, setting),
        tight_bounds(plans, setting),
    )
    assert (floor.step_s <= scores.step_s * ROUNDED).all()
    assert (tight.step_s <= np.where(scores.fits, scores.step_s, np.inf) * ROUNDED).all()
    for held in (floor.total_bytes, states, tight.total_bytes):
        assert (held <= scores.total_bytes * ROUNDED).all()
    assert (scores.total_bytes < usual.total_bytes).mean() > 0.9


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("model", MODELS)
def test_steps_that_overlap_take_no_less_either(model):
    cluster = load_cluster("h100-sxm-80gb x 16")
    setting = Setting.of(
        MODELS[model], cluster, Workload(seq_len=2048, global_batch=64), stack_of_any_model("meshwright")
    )
    names = ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1")
    schedules = tuple(ScheduleChoice(name, step_validation="after") for name in names)
    plans = enumerate_space(setting, {}, schedules).plans
    plans = plans.take(np.random.default_rng(0).permutation(len(plans))[:SOME])
    assert len(plans) == SOME
    scores, floor = evaluate(plans, setting), coarse_bounds(plans, setting)
    assert (floor.step_s <= scores.step_s * ROUNDED).all()
    assert (floor.total_bytes <= scores.total_bytes * ROUNDED).all()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"])
def test_bounds_of_large_models_are_near(name):
    plans, setting = sample(load_model(name), "megatron-core", devices=256)
    scores, floor = evaluate(plans, setting), coarse_bounds(plans, setting)
    time, memory = floor.step_s / scores.step_s, floor.total_bytes / scores.total_bytes
    print(f"bound over value: time {np.median(time):.3f}, memory {np.median(memory):.3f}")
    assert max(time.max(), memory.max()) <= ROUNDED
    assert np.median(time) > 0.5
    assert np.median(memory) > 0.5
