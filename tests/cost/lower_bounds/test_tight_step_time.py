"""Lower bounds of step times: below what is played, and near enough to it to be of use."""

import numpy as np
import pytest
from lattice_plans import DELAYED, MODELS
from stacks_of_any_model import stack_of_any_model

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.lower_bounds.tight_step_time import tight_bounds
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import divisors, enumerate_space
from meshwright.search.space.searched_schedules import all_schedules
from meshwright.workload.workload import Workload

PLANS, SOME = 250, 50
COUNTS = pytest.mark.parametrize("count", [SOME, pytest.param(PLANS, marks=pytest.mark.slow)])
ROUNDED = 1 + 1e-9
CASES = [(model, stack) for model in MODELS for stack in ("generic", "meshwright", "megatron-zero-bubble")]


def sample(model, stack, devices=8, batch=32, count=PLANS):
    """Plans of every schedule that the model's layers can be cut for."""
    cluster = load_cluster(f"h100-sxm-80gb x {devices}")
    workload = Workload(seq_len=2048, global_batch=batch)
    setting = Setting.of(MODELS[model], cluster, workload, stack_of_any_model(stack))
    schedules = all_schedules(setting.stack, divisors(devices))
    delayed = DELAYED if "in_flight" in setting.stack.schedule_knobs else ()
    schedules += tuple(choice for choice in delayed if choice.name in setting.stack.schedules)
    plans = enumerate_space(setting, {}, schedules).plans
    piped = plans.take(plans.pp > 1)
    some = np.random.default_rng(0).permutation(len(piped))[:count]
    firsts = np.unique(piped.schedule, return_index=True)[1]
    return piped.take(np.unique(np.concatenate([firsts, some]))), setting


@pytest.mark.quick_cases(1)
@COUNTS
@pytest.mark.parametrize(("model", "stack"), list(CASES))
def test_no_plan_is_quicker_than_its_bound(model, stack, count):
    plans, setting = sample(model, stack, count=count)
    scores, floor = evaluate(plans, setting), tight_bounds(plans, setting).step_s
    assert len(np.unique(plans.schedule)) >= 8
    assert not (np.isinf(floor) & scores.fits).any()
    ratio = floor[scores.fits] / scores.step_s[scores.fits]
    print(f"bound over time: mean {ratio.mean():.3f}, least {ratio.min():.3f}, most {ratio.max():.5f}")
    assert ratio.max() <= ROUNDED
    assert ratio.mean() > 0.75


@pytest.mark.slow
@pytest.mark.parametrize(("model", "stack"), list(CASES))
def test_no_plan_holds_less_than_its_bound(model, stack):
    plans, setting = sample(model, stack)
    held, floor = evaluate(plans, setting).total_bytes, tight_bounds(plans, setting)
    ratio = floor.total_bytes / held
    print(f"bound over bytes: mean {ratio.mean():.3f}, least {ratio.min():.3f}, most {ratio.max():.5f}")
    assert ratio.max() <= 1 + 1e-9
    assert ratio.mean() > 0.7
    assert (floor.limit_bytes >= floor.total_bytes).all()
    fixed = [choice.steady_rounds is not None and not choice.automatic for choice in plans.schedules]
    by_unit = np.array(plans.values["gather"])[plans.gather] == "per-unit"  # buffers of units are left out
    assert ratio[np.array(fixed)[plans.schedule] & ~by_unit] == pytest.approx(1)


@pytest.mark.quick_cases(1)
@COUNTS
@pytest.mark.parametrize("stack", ["generic", "megatron-zero-bubble"])
def test_plans_that_are_slow_by_their_work_keep_a_rougher_bound(stack, count):
    plans, setting = sample("tied", stack, count=count)
    exact = tight_bounds(plans, setting).step_s
    enough = float(np.median(exact))
    rough = tight_bounds(plans, setting, enough).step_s
    same = rough >= exact / ROUNDED  # two sums of the same passes
    assert (rough[~same] >= enough).all()
    assert (rough <= exact * ROUNDED).all()
    assert same.any()
    assert not same.all()
