from dataclasses import replace

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import constants
from meshwright.cost.prediction_intervals import (
    EXPERTS,
    UNKNOWN,
    Interval,
    fits_probability,
    is_fitted_setting,
    memory_interval,
    pair_interval,
    step_interval,
)
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload


def setting(model="llama-3.1-8b", device="h100-sxm-80gb", stack="megatron-core"):
    workload = Workload(seq_len=4096, global_batch=64)
    return Setting(load_model(model), load_cluster(f"{device} x 8"), workload, load_stack(stack))


def test_a_stack_whose_runs_were_fitted_on_this_device_is_surer():
    fitted, other = setting(stack="llm-foundry"), setting(stack="llm-foundry", device="b200")
    assert is_fitted_setting(fitted)
    assert not is_fitted_setting(other)
    for interval in (step_interval, pair_interval):
        assert other_is_wider(interval(fitted), interval(other))


def other_is_wider(one, other):
    return other.low < one.low < 1 < one.high < other.high


def test_an_unknown_stack_widens_the_peak():
    sure, unsure = memory_interval(setting()), memory_interval(setting(stack="generic"))
    assert sure.low < 1 < sure.high
    assert unsure.low == pytest.approx(sure.low**UNKNOWN)
    assert unsure.sigma == pytest.approx(UNKNOWN * sure.sigma)


def test_a_device_without_measured_kernels_widens_times_only():
    known, unmeasured = setting(), setting(device="mi300x")
    assert step_interval(unmeasured).high == pytest.approx(step_interval(known).high ** UNKNOWN)
    assert memory_interval(unmeasured) == memory_interval(known)


@pytest.mark.parametrize("stack", ["megatron-core", "megatron-bridge", "llm-foundry", "generic"])
@pytest.mark.parametrize("device", ["b200", "h100-sxm-80gb", "mi300x"])
def test_models_with_experts_have_no_narrow_interval(stack, device):
    """Not even where many runs of dense models on this stack and device were fitted."""
    found = step_interval(setting("mixtral-8x7b", device, stack))
    assert found.low <= 1 - EXPERTS
    assert found.high >= 1 + EXPERTS
    dense = step_interval(setting(device=device, stack=stack))
    assert found.low < dense.low or found.high > dense.high


def test_the_interval_of_experts_is_what_published_runs_say_where_they_say_more(monkeypatch):
    wide = Interval(0.5, 3.0)
    monkeypatch.setattr("meshwright.cost.prediction_intervals._time_interval", lambda *_: wide)
    assert step_interval(setting("mixtral-8x7b")) == wide


def test_how_likely_a_plan_fits():
    known = setting()
    usable = constants()["usable_memory"] * known.cluster.pool.device.memory_bytes
    chances = [fits_probability(share * usable, known) for share in (0.5, 0.9, 1.0, 1.1, 2.0)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.999
    assert chances[2] == pytest.approx(0.5)
    assert chances[-1] < 0.001
    unknown = replace(known, stack=load_stack("generic"))
    assert fits_probability(0.9 * usable, unknown) < chances[1]
