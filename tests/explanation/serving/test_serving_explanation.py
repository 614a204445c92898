"""Explanations of serving plans: each number is the prediction of a plan or cluster that one can ask for."""

import json

import pytest
from serving_cases import ONE_POOL, POOLS, serving

from meshwright.cost.serving.serving_report import serving_report
from meshwright.explanation.serving.serving_explanation import explain_serving
from meshwright.explanation.serving.serving_sensitivity import MEANS
from meshwright.plans.serving.resolve_serving import resolve_serving
from meshwright.plans.serving.serving_settings import with_settings

CLOSED = serving(ONE_POOL, ("rate_per_s: 2.5", "concurrency: 32"))
TWO_POOLS = serving(POOLS)


@pytest.fixture(scope="module", params=[CLOSED, TWO_POOLS], ids=["one pool", "two pools"])
def explained(request):
    return request.param, explain_serving(request.param, resolve_serving(request.param))


def test_each_step_away_is_the_prediction_of_that_plan(explained):
    file, found = explained
    assert found.choices
    for one in found.choices:
        again = serving_report(resolve_serving(with_settings(file, one.settings)))
        assert again.serving == one.report.serving
        assert again.fits


def test_steps_keep_the_devices_of_the_plan(explained):
    file, found = explained
    devices = resolve_serving(file).plan.devices
    for one in found.choices:
        assert resolve_serving(with_settings(file, one.settings)).plan.devices == devices


def test_steps_are_in_the_order_of_their_throughput(explained):
    rates = [one.report.serving["output_tokens_per_s"] for one in explained[1].choices]
    assert rates == sorted(rates, reverse=True)


def test_more_of_a_rate_never_hurts(explained):
    for one in explained[1].sensitivities:
        for mean, sign in zip(MEANS, (-1, -1, 1), strict=True):
            elasticity = one.elasticity(mean)
            assert elasticity is None or sign * elasticity >= -1e-6


def test_the_parts_of_the_time_sum_to_that_of_a_request(explained):
    data = explained[1].to_json()
    json.dumps(data, allow_nan=False)
    assert sum(part["share"] for part in data["time"]["parts"]) == pytest.approx(1)
    assert data["limited_by"] in ("memory_bandwidth", "compute", "max_sequences", "kv_room")


def test_a_plan_that_does_not_fit_has_steps_to_ones_that_do():
    file = serving(ONE_POOL, ("tp: 4", "tp: 1"), ("x 16", "x 2"))
    found = explain_serving(file, resolve_serving(file))
    assert not found.fits
    assert found.sensitivities == ()
    assert "kv_room" in found.summary[0]
    assert ("all.tp=2", "all.replicas=1") in [one.settings for one in found.choices]
