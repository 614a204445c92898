"""What more devices do to the rate of each: it does not rise, but for what sharded states save the optimizer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.plan_report import closed_form
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve

DEGREES = st.sampled_from([(1, 1), (2, 1), (4, 1), (1, 2), (2, 4), (8, 2)])


def parts(tp, pp, dp, sharding, micro_batches, device):
    """Seconds of a step by part, with the same work on every device whatever dp is."""
    axis = "dp_replicate" if sharding == "none" else "dp_shard"
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "llama-3.1-8b",
            "cluster": f"{device} x {tp * pp * dp}",
            "workload": {"seq_len": 4096, "global_batch": dp * micro_batches},
            "layout": {"tp": tp, "pp": pp, axis: dp},
            "sharding": sharding,
        }
    )
    resolved = resolve(plan)
    assert expand(plan, resolved.setting.model.architecture)
    return closed_form(plan, resolved.setting).parts


@settings(max_examples=25, deadline=None)
@given(
    DEGREES,
    st.integers(0, 5),
    st.sampled_from([1, 4, 16]),
    st.sampled_from(["none", "zero1", "zero3"]),
    st.sampled_from(["a100-sxm-80gb", "h100-sxm-80gb", "b200"]),
)
def test_a_device_is_no_quicker_among_more_of_them(degrees, power, micro_batches, sharding, device):
    tp, pp = degrees
    few, many = (
        parts(tp, pp, dp, sharding, max(micro_batches, 2 * pp), device)
        for dp in (8 * 2**power, 16 * 2**power)
    )
    gain = sum(few.values()) - sum(many.values())
    allowed = 0.0 if sharding == "none" else few["optimizer"]
    assert gain <= allowed + 1e-9 * sum(few.values())


@pytest.mark.parametrize("device", ["h100-sxm-80gb", "a100-sxm-80gb"])
def test_sharded_parameters_cost_more_over_more_nodes(device):
    rates = [sum(parts(1, 1, dp, "zero3", 1, device).values()) for dp in (128, 512, 2048)]
    assert rates == sorted(rates)
