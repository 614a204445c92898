"""Draws of a training against what is played failure by failure, and their laws."""

from dataclasses import replace

import numpy as np
import pytest
from economy_settings import ASSUMED, setting
from simulated_trainings import played_days

from meshwright.cluster.cluster import Sourced
from meshwright.cost.uncertainty.memory_error import fits_probability
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.tokens_and_assumptions import TrainingTerms
from meshwright.economy.training_cost import TrainingCost
from meshwright.economy.training_draws import rate_draws, training_draws, uniforms

STEP_S, COUNT, PLAYED, SMALL = 2.0, 4096, 10_000, 1e9
NO_SPREAD = np.zeros(COUNT)


def course(on="h100-sxm-80gb x 16", **assumed):
    terms = replace(ASSUMED, **assumed)
    return TrainingCost.of(setting(on, terms), TrainingTerms(10**11, terms))


def drawn(of, log_errors=NO_SPREAD, total_bytes=SMALL):
    return training_draws(of, STEP_S, log_errors, total_bytes)


def test_what_the_user_gave_has_no_spread():
    of = course(usd_per_device_hour=2.0, failures_per_1000_node_days=0.0)
    found = drawn(of)
    assert found.ends("days") == pytest.approx([of.costs(STEP_S).days] * 2)
    assert found.ends("usd") == pytest.approx([of.costs(STEP_S).usd] * 2)
    assert found.sure(Limits(budget_usd=of.costs(STEP_S).usd * 1.001)) == 1.0


def test_prices_are_those_of_the_offers():
    offers = (1.0, 2.0, 9.0)
    of = course(failures_per_1000_node_days=0.0)
    pool = replace(of.setting.cluster.pool, usd_per_device_hour=Sourced(2.0, "three", offers=offers))
    of = replace(of, setting=replace(of.setting, cluster=replace(of.setting.cluster, pools=(pool,))))
    per_dollar = of.costs(STEP_S).device_hours
    usd, counts = np.unique(drawn(of).usd / per_dollar, return_counts=True)
    assert usd == pytest.approx(offers)
    assert counts / COUNT == pytest.approx([1 / 3] * 3, abs=0.01)


def test_rates_are_gamma_distributed():
    draws = rate_draws(10, "a device", 200_000)
    assert draws.mean() == pytest.approx(10.5 / 10, rel=0.01)
    assert draws.std() == pytest.approx(10.5**0.5 / 10, rel=0.02)
    assert (rate_draws(None, "a device", 8) == 1).all()


def test_a_plan_fits_as_often_as_its_report_says():
    of = course()
    total = 0.9 * of.setting.cluster.pool.device.memory_bytes
    assert drawn(of, total_bytes=total).fits.mean() == pytest.approx(
        fits_probability(total, of.setting), abs=0.001
    )


def test_limits_hold_together():
    of = course()
    found = drawn(of, 0.1 * uniforms("a step", COUNT).normal)
    one, other = Limits(deadline_days=of.costs(STEP_S).days), Limits(budget_usd=of.costs(STEP_S).usd)
    both = Limits(other.budget_usd, one.deadline_days)
    kept = found.met(one) & found.met(other)
    assert found.sure(both) == kept.mean() < min(found.sure(one), found.sure(other))
    assert found.missed(both) == pytest.approx(
        {"deadline": 1 - found.sure(one), "budget": 1 - found.sure(other)}, abs=1e-12
    )


@pytest.mark.parametrize("nodes", [4, 64])
def test_days_of_a_known_speed_are_distributed_as_in_trainings_that_are_played(nodes):
    """Then only failures spread them: their number, and the work that each throws away."""
    of = course(f"h100-sxm-80gb x {8 * nodes}", spare_nodes=0, failures_per_1000_node_days=10.0)
    days = drawn(of).seconds / 86400
    played = played_days(of, np.full(PLAYED, STEP_S), np.random.default_rng(nodes))
    at = np.linspace(days.min(), days.max(), 200)[
        1:
    ]  # the first is without failures: one checkpoint more or less
    shares = [np.searchsorted(np.sort(each), at) / len(each) for each in (days, played)]
    assert shares[0] == pytest.approx(shares[1], abs=0.03)


@pytest.mark.parametrize("nodes", [4, 64])
@pytest.mark.parametrize("spare_nodes", [0, 2])
def test_days_are_distributed_as_in_trainings_that_are_played(nodes, spare_nodes):
    rate = Sourced(40.0, "ten failures", events=10)
    of = course(f"h100-sxm-80gb x {8 * nodes}", spare_nodes=spare_nodes)
    cluster = replace(of.setting.cluster, failures_per_1000_node_days=rate)
    of = TrainingCost.of(replace(of.setting, cluster=cluster), of.terms)
    errors = 0.1 * uniforms("a step", COUNT).normal
    found = drawn(of, errors)
    draw = np.random.default_rng(nodes)
    played = played_days(of, STEP_S * np.exp(0.1 * draw.standard_normal(PLAYED)), draw)
    for quantile in (0.1, 0.3, 0.5, 0.7, 0.9):
        days = float(np.quantile(found.seconds, quantile)) / 86400
        assert np.mean(played <= days) == pytest.approx(quantile, abs=0.03)
