"""What the doubt about constants does to step times, against steps that are priced with the drawn constants."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.constant_values import value_in, with_values
from meshwright.cost.uncertainty.constant_draws import ConstantDraws, constant_draws
from meshwright.cost.uncertainty.constants_error import log_responses, middle_of
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

HOST, GEMM, HBM = "*/host_s_per_layer", "h100:gemm_efficiency", "hbm_efficiency"


def setting(cluster="h100-sxm-80gb x 16", stack="megatron-core", seq_len=4096):
    workload = Workload(seq_len=seq_len, global_batch=32, precision="bf16")
    return Setting(load_model("llama-3.1-8b"), load_cluster(cluster), workload, load_stack(stack))


def plans(*layouts, schedule="1f1b"):
    shared = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": "h100-sxm-80gb x 16",
        "workload": {"seq_len": 4096, "global_batch": 32},
        "pipeline": {"schedule": schedule, "micro_batch": 1},
    }
    return from_shorts([ShortPlan.model_validate(shared | {"layout": layout}) for layout in layouts])


def draws_of(name, log_factors):
    return ConstantDraws((name,), np.array(log_factors, dtype=np.float64)[:, None])


@pytest.mark.parametrize(("name", "sigma"), [(GEMM, 0.1), (HBM, 0.3), (HOST, 1.0)])
def test_draws_at_the_computed_values_are_those_of_the_changed_constant(name, sigma):
    here, drawn = setting(stack="torchtitan"), sigma * np.array([1.0, -1.0])
    two = plans({"dp_shard": 4, "tp": 4}, {"dp_shard": 8, "pp": 2})
    found = log_responses(two, here, draws_of(name, drawn))
    for row, log_factor in zip(found, drawn, strict=True):
        moved = with_values(here, {name: value_in(here, name) * np.exp(log_factor)})
        expected = np.log(step_seconds(two, moved) / step_seconds(two, here))
        assert row == pytest.approx(expected, abs=0.01)


def test_effects_of_several_constants_add_up():
    here, two = setting(), plans({"dp_shard": 4, "tp": 4}, {"dp_shard": 8, "pp": 2})
    both = ConstantDraws((GEMM, HBM), np.array([[0.1, 0.2], [-0.1, -0.2]]))
    found = log_responses(two, here, both)
    one, other = (
        log_responses(two, here, draws_of(name, both.log_factors[:, i])) for i, name in enumerate((GEMM, HBM))
    )
    assert found == pytest.approx(one + other)


def test_slower_launches_make_a_small_step_longer_and_faster_ones_change_nothing():
    small = setting(stack="torchtitan", seq_len=128)
    drawn = np.linspace(-2, 2, 41)
    (slow,) = log_responses(plans({"dp_shard": 2, "tp": 8}), small, draws_of(HOST, drawn)).T
    assert slow[-1] > 0.3
    assert abs(slow[0]) < slow[-1]
    low, high = middle_of(slow[:, None])
    assert high[0] > -low[0]


def test_what_moves_both_plans_alike_cancels_in_their_ratio():
    here, two = setting(), plans({"dp_shard": 4, "tp": 4}, {"dp_shard": 2, "tp": 4, "pp": 2})
    found = log_responses(two, here)
    assert (found[:, 0] - found[:, 1]).std() < 0.8 * found.std(0).min()


def test_an_unseen_stack_is_drawn_from_the_priors_and_a_seen_one_from_its_own_fit():
    plan = plans({"dp_shard": 16})
    unseen = dict(constant_draws().concerning(setting(stack="torchtitan"), plan))
    assert "*/elementwise_factor" in unseen
    seen = dict(constant_draws().concerning(setting(stack="llm-foundry"), plan))
    assert "llm-foundry/elementwise_factor" in seen
    assert "*/elementwise_factor" not in seen
    assert seen["llm-foundry/elementwise_factor"].std() < unseen["*/elementwise_factor"].std()


def test_an_unseen_stack_has_the_wider_interval():
    plan = plans({"dp_shard": 16})
    ends = [
        middle_of(log_responses(plan, setting(stack=name)))[1][0] for name in ("llm-foundry", "torchtitan")
    ]
    assert ends[0] < ends[1]


def test_a_constant_that_the_cluster_knows_is_not_drawn():
    here, plan = setting(), plans({"dp_shard": 16})
    known = replace(here, cluster=replace(here.cluster, calibration=(("gemm_efficiency", 0.6),)))
    drawn = [name for name, _ in constant_draws().concerning(known, plan)]
    assert GEMM not in drawn
    assert GEMM in [name for name, _ in constant_draws().concerning(here, plan)]


def test_schedules_that_are_played_take_the_effects_of_1f1b():
    here = setting()
    played = plans({"dp_shard": 4, "pp": 4}, schedule="zb-h1")
    usual = plans({"dp_shard": 4, "pp": 4}, schedule="1f1b")
    assert np.array_equal(log_responses(played, here), log_responses(usual, here))


def test_the_present_value_is_never_outside_of_the_middle():
    low, high = middle_of(np.array([[0.1], [0.2], [0.3]]))
    assert (low[0], high[0]) == (0.0, pytest.approx(0.28))
