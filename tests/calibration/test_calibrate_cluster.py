"""Calibration of a cluster on a few runs."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from synthetic_measured_runs import PLANS, observation

from meshwright.calibration.calibrate_cluster import fit_cluster_constants
from meshwright.calibration.observations import on_cluster
from meshwright.cluster.cluster import Tier
from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError

SLOW = {"gemm_efficiency": 0.55, "nic_efficiency": 0.4}


@cache
def fitted_to_slow(count):
    """The fit to the first plans on a slower machine."""
    return fit_cluster_constants([observation(SLOW, PLANS[:count])])


def test_runs_on_a_slower_machine_help():
    found = fitted_to_slow(4)
    assert found.helps
    assert found.error_after < 0.5 * found.error_before
    assert found.values["nic_efficiency"] < found.present["nic_efficiency"]


def test_what_was_fitted_predicts_plans_that_were_not_run():
    found = fitted_to_slow(4)
    unseen = observation(SLOW, PLANS[4:])
    before, after = (np.abs(unseen.log_errors(values)).mean() for values in ({}, found.values))
    assert after < before


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(6))
def test_noise_around_the_present_constants_is_harmless(seed):
    found = fit_cluster_constants([observation({}, PLANS[:4], noise=0.03, seed=seed)])
    unseen = np.abs(observation({}, PLANS[4:]).log_errors(found.values)).mean()
    assert unseen < 0.05


def test_runs_that_span_a_tier_fit_its_oversubscription():
    pod, hidden = Tier(name="pod", devices=32, oversubscription=4), {"oversubscription.pod": 8}
    found = fit_cluster_constants([observation(hidden, tiers=(pod,))])
    assert found.error_after < 0.1 * found.error_before
    (tier,) = found.cluster.tiers
    assert found.present["oversubscription.pod"] == 4
    assert 5 < tier.oversubscription < 8  # the prior and the cards' efficiency take the rest
    assert tier.oversubscription == found.values["oversubscription.pod"]
    assert "oversubscription.pod" not in dict(found.cluster.calibration)
    assert tier.source == "fitted to runs"
    assert load_cluster(dump_cluster(found.cluster)) == found.cluster


def test_a_tier_that_no_run_spans_is_left():
    hall = Tier(name="hall", devices=64, oversubscription=4)
    found = fit_cluster_constants([observation(SLOW, PLANS[:3], tiers=(hall,))])
    plain = fitted_to_slow(3)
    assert found.values == pytest.approx(plain.values)
    assert found.cluster.tiers == (hall,)


def test_runs_that_the_constants_can_not_explain_are_refused():
    apart = [observation({}, PLANS[:3]), observation({"gemm_efficiency": 0.3}, PLANS[:1])]
    found = fit_cluster_constants(apart)
    assert found.error_after > found.error_before
    assert not found.helps


def test_the_cluster_file_carries_the_calibration():
    found = fitted_to_slow(3)
    again = load_cluster(dump_cluster(found.cluster))
    assert dict(again.calibration) == pytest.approx(dict(found.values))
    assert again == found.cluster


@pytest.mark.parametrize(
    ("runs", "word"),
    [
        ([observation({}, PLANS[:2])], "at least 3"),
        ([observation({}), observation({}, device="a100-sxm-80gb")], "several devices"),
    ],
)
def test_too_few_or_mixed_runs_are_refused(runs, word):
    with pytest.raises(InputError, match=word):
        fit_cluster_constants(runs)


@pytest.mark.slow
def test_a_cluster_that_is_known_better_is_where_the_fit_begins():
    """Runs of a slow machine fit at once on the cluster that says how slow it is, and what it says besides stays."""
    base = observation({}).setting.cluster
    known = replace(base, calibration=tuple((SLOW | {"hbm_efficiency": 0.5}).items()))
    (slow,) = [observation(SLOW | {"hbm_efficiency": 0.5})]
    plain, better = fit_cluster_constants([slow]), fit_cluster_constants(on_cluster([slow], known))
    assert better.error_before < 1e-6 < 0.05 < plain.error_before
    assert dict(better.cluster.calibration)["hbm_efficiency"] == 0.5
    assert better.present["nic_efficiency"] == SLOW["nic_efficiency"]


def test_a_cluster_of_another_device_or_of_several_pools_is_no_beginning():
    other = observation({}, device="a100-sxm-80gb").setting.cluster
    with pytest.raises(InputError, match="the runs are of"):
        on_cluster([observation({})], other)
    two = replace(other, pools=(other.pool, replace(other.pool, name="second")))
    with pytest.raises(InputError, match="2 pools"):
        on_cluster([observation({})], two)
