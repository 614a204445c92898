"""Plans priced under many changed constants at once, against the same plans priced under one change at a time."""

from dataclasses import replace

import numpy as np
import pytest
from lattice_plans import SPLIT, WHOLE, WITH_UNITS, family

from meshwright.cluster.cluster import Tier
from meshwright.cost.closed_form.constant_changes import changed_step_seconds
from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.constant_values import matters, value_in, with_values
from meshwright.cost.pipeline_time import time_action_lists
from meshwright.cost.uncertainty.constant_draws import constant_draws
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.host_offload import Offload

CLUSTER = "h100-sxm-80gb x 24"
SOME = 4
CASES = [
    pytest.param("tied", CLUSTER, "megatron-core", WHOLE, marks=pytest.mark.slow),
    ("untied", "a100-sxm-80gb x 16", "torchtitan", WHOLE),
    pytest.param("sparse", CLUSTER, "megatron-core", WHOLE, marks=pytest.mark.slow),
    ("sparse", CLUSTER, "generic", SPLIT),
    ("tied", CLUSTER, "generic", WITH_UNITS),
]


def equal_one_by_one(plans, setting):
    names = [name for name in constant_draws().names if matters(name, setting, plans)]
    changes = [(name, factor * value_in(setting, name)) for name in names for factor in (0.6, 1.7)]
    expected = [step_seconds(plans, with_values(setting, {name: value})) for name, value in changes]
    found = changed_step_seconds(plans, setting, changes)
    assert found.shape == (len(changes), len(plans))
    assert found == pytest.approx(np.array(expected), rel=1e-12)
    return dict(zip(changes, found, strict=True))


@pytest.mark.parametrize("count", [SOME, pytest.param(3 * SOME, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("model", "cluster", "stack", "schedules"), CASES)
def test_changes_at_once_equal_changes_one_by_one(model, cluster, stack, schedules, count):
    found = family(model, cluster, stack, count, 5, schedules)
    equal_one_by_one(from_shorts(found.plans), found.setting)


@pytest.mark.parametrize("count", [2, 7])
def test_plans_with_copies_to_the_hosts_are_played_under_all_changes_together(count, monkeypatch):
    found = family("tied", CLUSTER, "meshwright", 60, 3)
    plans = from_shorts([plan for plan in found.plans if plan.layout.pp > 1][:count])
    equal_one_by_one(plans.with_choice("offload", Offload(activations=0.5)), found.setting)
    monkeypatch.setattr(time_action_lists, "MANY", 5)
    equal_one_by_one(plans.with_choice("offload", Offload(activations=0.5)), found.setting)


def test_an_oversubscribed_tier_is_changed_too():
    found = family("tied", CLUSTER, "megatron-core", 8, 7)
    tier = Tier(name="leaf", devices=8, oversubscription=2.0)
    setting = replace(found.setting, cluster=replace(found.setting.cluster, tiers=(tier,)))
    plans = from_shorts(found.plans)
    changes = [("oversubscription.leaf", 6.0), ("hbm_efficiency", 0.5)]
    slower, other = changed_step_seconds(plans, setting, changes)
    assert slower == pytest.approx(step_seconds(plans, with_values(setting, dict(changes[:1]))), rel=1e-12)
    assert other == pytest.approx(step_seconds(plans, with_values(setting, dict(changes[1:]))), rel=1e-12)
    assert (slower > step_seconds(plans, setting)).any()


def test_no_plans_and_no_changes_are_no_problem():
    found = family("tied", CLUSTER, "megatron-core", 3, 7)
    plans = from_shorts(found.plans)
    assert changed_step_seconds(plans, found.setting, []).shape == (0, 3)
    nothing = plans.take(np.zeros(0, dtype=np.int64))
    assert changed_step_seconds(nothing, found.setting, [("hbm_efficiency", 0.5)]).shape == (1, 0)
