"""The bound with which a search leaves plans out never leaves out one that fits."""

import numpy as np
import pytest
from small_questions import MODELS, asked, random_question

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.lower_bounds.state_memory import may_fit, state_memory_bound
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

SOME = 300
ZOO = [
    ("llama-3.1-8b", "h100-sxm-80gb x 8", "megatron-core"),
    ("llama-3.1-8b", "a100-sxm-40gb x 6", "torchtitan"),
    ("gpt-22b", "a100-sxm-40gb x 16", "meshwright"),
    ("mixtral-8x7b", "h100-sxm-80gb x 12", "megatron-core"),
    ("deepseek-v3", "h200-sxm-141gb x 16", "torchtitan"),
    ("gemma-2-9b", "a100-sxm-40gb x 12", "deepspeed"),
]


def _assert_bound(setting):
    plans = enumerate_space(setting).plans
    if not len(plans):
        return np.zeros(0), np.zeros(0)
    scores = evaluate(plans, setting)
    floor = state_memory_bound(plans, setting)
    assert (floor <= scores.total_bytes * (1 + 1e-12)).all()
    assert not (scores.fits & ~may_fit(plans, setting)).any()
    return floor, scores.total_bytes


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("model", "cluster", "stack"), ZOO)
def test_the_bound_is_below_the_peak_of_every_plan(model, cluster, stack):
    workload = Workload(seq_len=2048, global_batch=24)
    setting = Setting(load_model(model), load_cluster(cluster), workload, load_stack(stack))
    floor, total = _assert_bound(setting)
    assert (floor > 0.3 * total).any()
    assert not may_fit(enumerate_space(setting).plans, setting).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(MODELS))
def test_the_bound_holds_for_wide_small_models(kind):
    for devices, stack in ((12, "generic"), (10, "megatron-core"), (8, "torchtitan")):
        question = asked(kind, devices, stack, layers=3, seq_len=60, batch=12, width=64)
        _assert_bound(question.setting)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_holds_on_random_questions(seed):
    _assert_bound(random_question(seed).setting)


def test_only_fitting_leaves_times_of_plans_that_fit_alone():
    workload = Workload(seq_len=2048, global_batch=24)
    setting = Setting(
        load_model("llama-3.1-8b"), load_cluster("a100-sxm-40gb x 6"), workload, load_stack("meshwright")
    )
    plans = enumerate_space(setting).plans
    plans = plans.take(np.random.default_rng(0).permutation(len(plans))[:SOME])
    every, fitting = evaluate(plans, setting), evaluate(plans, setting, only_fitting=True)
    assert (every.fits == fitting.fits).all()
    assert 0 < every.fits.sum() < len(plans)
    assert fitting.step_s[every.fits] == pytest.approx(every.step_s[every.fits])
    assert np.isinf(fitting.step_s[~every.fits]).all()
    assert np.isfinite(every.step_s).all()
