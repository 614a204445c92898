"""Constants by name: their values in a setting, and settings in which they are changed."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.constant_values import is_known, matters, value_in, with_values
from meshwright.cost.uncertainty.constant_draws import constant_draws
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload


def setting(model="llama-3.1-8b", cluster="h100-sxm-80gb x 16", stack="megatron-core", precision="bf16"):
    workload = Workload(seq_len=4096, global_batch=32, precision=precision)
    return Setting(load_model(model), load_cluster(cluster), workload, load_stack(stack))


def plans(**layout):
    data = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": "h100-sxm-80gb x 16",
        "workload": {"seq_len": 4096, "global_batch": 32},
        "layout": {"dp_shard": 4, "tp": 4} | layout,
    }
    return from_shorts([ShortPlan.model_validate(data)])


@pytest.mark.parametrize("name", constant_draws().names)
def test_a_changed_constant_has_its_new_value_where_it_is_the_settings_own(name):
    here = setting(stack="megatron-bridge")
    before = value_in(here, name) if matters(name, here, plans()) else None
    changed = with_values(here, {name: 0.1234})
    if before is not None:
        assert value_in(changed, name) == 0.1234
    elif "/" in name and not name.startswith(("*", "megatron-bridge/")):
        assert changed.stack == here.stack


@pytest.mark.parametrize("name", constant_draws().names)
def test_a_constant_that_does_not_matter_changes_no_step(name):
    here, plan = setting(), plans()
    if not matters(name, here, plan):
        moved = with_values(here, {name: 0.2})
        assert np.array_equal(step_seconds(plan, moved), step_seconds(plan, here))


def test_the_clusters_own_value_stands_for_the_fitted_one():
    here = setting()
    own = replace(here, cluster=replace(here.cluster, calibration=(("gemm_efficiency", 0.5),)))
    assert value_in(own, "h100:gemm_efficiency") == 0.5
    assert is_known(own, "h100:gemm_efficiency")
    assert not is_known(here, "h100:gemm_efficiency")


@pytest.mark.parametrize("order", [1, -1])
def test_a_value_of_the_family_or_stack_goes_before_one_of_any(order):
    names = [
        "h100:gemm_efficiency",
        "*:gemm_efficiency",
        "megatron-core/host_s_per_layer",
        "*/host_s_per_layer",
    ]
    given = dict(zip(names, (0.5, 0.9, 0.001, 0.002), strict=True))
    changed = with_values(setting(), dict(list(given.items())[::order]))
    assert value_in(changed, "h100:gemm_efficiency") == 0.5
    assert changed.stack.host_s_per_layer == 0.001
