"""The recommended plan and its regret, against draws that are looked at one by one."""

import numpy as np
import pytest

from meshwright.cost.uncertainty.regret import CLOSE, Regret, axes_above_one, recommended_order, regrets
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortLayout, ShortPlan, WorkloadSpec

WORKLOAD = WorkloadSpec(seq_len=2048, global_batch=32)


def plan(layout):
    shape = ShortLayout(**layout)
    return ShortPlan(
        plan=1, model="llama-3.1-8b", cluster="h100-sxm-80gb x 8", workload=WORKLOAD, layout=shape
    )


def plans(*layouts):
    return from_shorts([plan(layout) for layout in layouts])


def test_regret_is_the_loss_against_the_best_plan_of_each_draw():
    rng = np.random.default_rng(3)
    step_s, errors = rng.uniform(1, 2, 7), rng.normal(0, 0.2, (50, 7))
    found = regrets(step_s, errors)
    times = step_s * np.exp(errors)
    for plan, regret in enumerate(found):
        losses = [row[plan] / min(row) - 1 for row in times]
        assert regret.mean == pytest.approx(np.mean(losses))
        assert regret.p80 == pytest.approx(np.quantile(losses, 0.8))


def test_errors_that_plans_share_are_no_regret():
    shared = np.random.default_rng(0).normal(0, 0.5, (20, 1)) * np.ones((1, 3))
    assert [r.p80 for r in regrets(np.array([2.0, 1.0, 1.1]), shared)] == pytest.approx([1.0, 0.0, 0.1])


def test_a_plan_that_does_not_fit_counts_as_the_slowest_that_does():
    step_s, fits = np.array([1.0, 2.0, 3.0]), np.array([[False, True, True], [False, False, False]])
    first, second, third = regrets(step_s, np.zeros((2, 3)), fits)
    assert first.mean == pytest.approx((0.5 + 0.0) / 2)
    assert second.mean == pytest.approx((0.0 + 1.0) / 2)
    assert third.mean == pytest.approx((0.5 + 2.0) / 2)


def test_of_plans_with_close_regrets_the_simplest_comes_first():
    three = plans({"dp_shard": 8}, {"dp_shard": 4, "tp": 2}, {"dp_shard": 2, "tp": 2, "cp": 2})
    found = [Regret(0, 0.10 + 0.9 * CLOSE), Regret(0, 0.10), Regret(0, 0.10 + 0.5 * CLOSE)]
    nothing = np.zeros(3)
    assert recommended_order(found, axes_above_one(three), nothing, nothing, np.ones(3)).tolist() == [0, 1, 2]
    apart = [Regret(0, 0.10 + 1.1 * CLOSE), *found[1:]]
    assert recommended_order(apart, axes_above_one(three), nothing, nothing, np.ones(3)).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("departures", "held", "first"), [([1, 0], [1, 2], 1), ([0, 0], [2, 1], 1), ([0, 0], [1, 2], 0)]
)
def test_then_the_fewest_departures_from_defaults_then_the_most_free_memory(departures, held, first):
    two = plans({"dp_shard": 4, "tp": 2}, {"dp_shard": 2, "tp": 4})
    close = [Regret(0, 0.1), Regret(0, 0.1 + 0.5 * CLOSE)]
    order = recommended_order(close, axes_above_one(two), np.array(departures), np.array(held), np.ones(2))
    assert order[0] == first


def test_a_scaled_regret_is_that_of_a_step_so_much_longer():
    assert Regret(0.1, 0.2).scaled(1.5) == Regret(pytest.approx(0.65), pytest.approx(0.8))
    assert Regret(0.1, 0.2).scaled(0.5) == Regret(0.0, 0.0)
