"""Days, device-hours, dollars and kWh of a training, and what is said where something is unknown."""

from dataclasses import replace

import numpy as np
import pytest
from economy_settings import ASSUMED, setting

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.report_with_training_cost import report_with_training_cost
from meshwright.economy.tokens_and_assumptions import TrainingTerms
from meshwright.economy.training_cost import TrainingCost
from meshwright.economy.training_draws import training_draws, uniforms
from meshwright.result import Report

TOKENS = 10**12
NO_FAILURES = Assumptions(failures_per_1000_node_days=0.0, usd_per_device_hour=2.0, power_w_per_device=500.0)


def course(on="h100-sxm-80gb x 16", assumed=ASSUMED, tokens=TOKENS):
    return TrainingCost.of(setting(on, assumed), TrainingTerms(tokens, assumed))


def report(step_s=2.0):
    return Report(
        kind="predicted",
        unit="step",
        step_time_s=step_s,
        step_time_low_s=0.9 * step_s,
        step_time_high_s=1.2 * step_s,
        tokens_per_s=4096 * 64 / step_s,
        tokens_per_s_per_device=4096 * 64 / step_s / 16,
        mfu=None,
        mfu_causal=None,
        hfu=None,
        memory_bytes={},
        fits=True,
        fits_probability=None,
        breakdown_s={},
        usd_per_hour=None,
        usd_per_step=None,
        joules_per_step=None,
    )


def reported(of):
    """The report with the training's costs, at errors of the step time from 0.9 to 1.2."""
    spread = np.interp(uniforms("step", 4096).probability, (0, 0.1, 0.5, 0.9, 1), (0.8, 0.9, 1, 1.2, 1.4))
    return report_with_training_cost(report(), of, training_draws(of, 2.0, np.log(spread), 1e9), 1)


def test_by_hand():
    of = course(assumed=NO_FAILURES)
    steps = -(-TOKENS // (4096 * 64))
    costs = of.costs(2.0)
    assert of.steps == steps
    assert costs.days == pytest.approx(steps * 2 / 86400)
    assert costs.device_hours == pytest.approx(steps * 2 / 3600 * 16)
    assert costs.usd == pytest.approx(steps * 2 / 3600 * 16 * 2.0)
    assert costs.kwh_boards == pytest.approx(steps * 2 * 16 * 500.0 / 3.6e6)
    assert costs.power_kw == pytest.approx(2 * 10.2 * 1.2)
    assert costs.kwh == costs.kwh_site == pytest.approx(steps * 2 / 3600 * costs.power_kw)
    assert costs.kg_co2 is None
    greener = course(assumed=replace(NO_FAILURES, kg_co2_per_kwh=0.25, pue=1.0))
    assert greener.costs(2.0).kg_co2 == pytest.approx(costs.kwh / 1.2 / 4)


def test_failures_stretch_everything_and_spare_nodes_are_paid_for():
    bare, failing = course(assumed=NO_FAILURES), course()
    share = failing.outages.share(2.0)
    assert 0.8 < share < 1
    assert failing.spare_nodes == 0
    assert failing.costs(2.0).days == pytest.approx(bare.costs(2.0).days / share)
    spare = course(assumed=replace(ASSUMED, spare_nodes=1))
    assert spare.costs(2.0).days < failing.costs(2.0).days
    assert spare.devices_paid == 24
    assert spare.costs(2.0).usd > failing.costs(2.0).usd
    assert spare.costs(2.0).device_hours == pytest.approx(spare.costs(2.0).days * 24 * 16)


def test_the_public_form():
    found = reported(course()).to_json()
    training = found["training"]
    for name in ("days", "device_hours", "usd", "kwh", "days_without_failures"):
        ends = training[name]
        assert ends["low"] < ends["value"] < ends["high"]
    assert training["days_without_failures"]["high"] == pytest.approx(
        1.2 * training["days_without_failures"]["value"], rel=1e-3
    )
    assert (
        training["usd"]["high"] / training["usd"]["value"]
        > training["days"]["high"] / training["days"]["value"]
    )
    assert training["tokens"] == TOKENS
    lost = found["goodput"]["lost"]
    assert found["goodput"]["share"] + sum(lost.values()) == pytest.approx(1.0)
    assert found["goodput"]["useful_tokens_per_s"] < found["tokens_per_s"]
    mtbf_hours = found["goodput"]["mtbf_hours"]
    assert training["failures"] == pytest.approx(
        training["days"]["value"] * 24 * (1 - lost["waiting"]) / mtbf_hours
    )
    assert {"training.days", "training.usd", "training.kwh", "goodput"} <= found["origin"].keys()
    assert "storage_gbyte_per_s_per_node = 2," in found["origin"]["goodput"]
    assert "repair_hours = 4 (usual)" in found["origin"]["goodput"]


def test_no_tokens_no_training():
    assert reported(course(tokens=None)).training is None


def test_what_is_unknown_is_null_with_the_reason():
    unknown = course("l4 x 8", Assumptions())
    pool = unknown.setting.cluster.pool
    bare = replace(
        pool,
        usd_per_device_hour=None,
        device=replace(pool.device, power_w=None),
        node=replace(pool.node, power_w=None),
    )
    cluster = replace(unknown.setting.cluster, pools=(bare,))
    found = reported(TrainingCost.of(replace(unknown.setting, cluster=cluster), unknown.terms)).to_json()
    assert found["goodput"] is None
    assert found["training"]["usd"] is None
    assert found["training"]["kwh"] is None
    assert found["training"]["failures"] is None
    assert found["training"]["days"] == pytest.approx(found["training"]["days_without_failures"], rel=1e-3)
    for name in ("goodput", "training.usd", "training.kwh"):
        assert found["origin"][name].startswith("null: ")
        assert "--assume" in found["origin"][name]
    assert "without failures" in found["origin"]["training.days"]


def test_a_training_that_does_not_get_on_has_no_end():
    stuck = course(assumed=replace(ASSUMED, failures_per_1000_node_days=1e9))
    found = reported(stuck).to_json()
    assert found["training"]["days"] is found["training"]["usd"] is None
    assert found["training"]["days_without_failures"] is not None
    assert "quicker than work" in found["origin"]["training.days"]
    assert "quicker than work" in found["origin"]["training.usd"]
    assert found["goodput"]["share"] == pytest.approx(0, abs=1e-6)
