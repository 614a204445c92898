"""Figures of merit against small cases worked by hand and against slow definitions."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.validation import error_metrics

times = st.lists(st.sampled_from([1.0, 1.04, 1.06, 1.1, 2.0, 2.5, 7.0]), min_size=1, max_size=40)
quick = settings(deadline=None, max_examples=60)


def test_errors_by_hand():
    ratio = np.array([0.5, 2.0, 1.1])
    assert error_metrics.mape(ratio) == pytest.approx((0.5 + 1.0 + 0.1) / 3)
    assert error_metrics.bias(ratio) == pytest.approx(1.1 ** (1 / 3) - 1)
    assert error_metrics.bias(np.array([0.5, 2.0])) == pytest.approx(0.0)


def test_equal_values_share_their_mean_rank():
    assert error_metrics.ranks(np.array([10.0, 30.0, 20.0, 20.0])).tolist() == [1, 4, 2.5, 2.5]
    assert error_metrics.ranks(np.array([5.0, 5.0, 5.0])).tolist() == [2, 2, 2]


def test_spearman_without_ties_is_the_textbook_formula():
    a, b = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 5])
    squares = ((error_metrics.ranks(a) - error_metrics.ranks(b)) ** 2).sum()
    assert error_metrics.spearman(a, b) == pytest.approx(1 - 6 * squares / (5 * 24))


def test_spearman_with_ties_is_the_correlation_of_ranks():
    a, b = np.array([1.0, 2, 2, 3]), np.array([1.0, 3, 2, 4])
    # ranks 1 2.5 2.5 4 and 1 3 2 4: covariance 4.5, variances 4.5 and 5
    assert error_metrics.spearman(a, b) == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_spearman_of_a_constant_is_unknown():
    assert error_metrics.spearman(np.array([1.0, 2, 3, 4]), np.ones(4)) is None


def test_pairs_by_hand():
    measured = np.array([1.0, 1.04, 1.2, 2.0])  # 1.0 and 1.04 are too close to count
    predicted = np.array([3.0, 1.0, 2.0, 4.0])  # 1.0 before 1.2 is wrong, the other four are right
    assert error_metrics.ordered_pairs(measured, predicted) == (4, 5)


def test_equal_predictions_are_not_in_order():
    assert error_metrics.ordered_pairs(np.array([1.0, 2.0]), np.array([1.0, 1.0])) == (0, 1)


def test_exactly_five_percent_is_not_more_than_five_percent():
    assert error_metrics.ordered_pairs(np.array([1.0, 1.05]), np.array([1.0, 2.0])) == (0, 0)


@quick
@given(times, st.randoms(use_true_random=False))
def test_pairs_are_those_of_the_definition(measured, random):
    predicted = [random.choice([1.0, 2.0, 3.0, 4.0]) for _ in measured]
    counted = right = 0
    for i, j in combinations(range(len(measured)), 2):
        low, high = sorted((i, j), key=lambda k: measured[k])
        if measured[high] > 1.05 * measured[low]:
            counted += 1
            right += predicted[high] > predicted[low]
    assert error_metrics.ordered_pairs(np.array(measured), np.array(predicted)) == (right, counted)


def test_a_hundred_thousand_pairs_of_everything_are_counted_quickly():
    order = np.random.default_rng(0).permutation(100_000).astype(float)
    measured = np.exp(order / 1000)
    right, counted = error_metrics.ordered_pairs(measured, order)
    assert right == counted > 4.9e9


def test_regret_by_hand():
    measured = np.array([1.3, 1.1, 2.0, 1.0])
    assert error_metrics.regret(measured) == pytest.approx(0.3)
    assert error_metrics.regret(measured, 3) == pytest.approx(0.1)
    assert error_metrics.regret(measured, 4) == 0


def test_the_fitted_utilisation_by_hand():
    # |u/U − 1| for u = 0.2, 0.4: U = 0.4 gives 0.5 + 0; U = 0.2 gives 0 + 1; between them more than 0.5
    assert error_metrics.fitted_utilisation(np.array([0.2, 0.4])) == 0.4


@quick
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=20), st.floats(0.005, 2.0))
def test_no_other_utilisation_errs_less(utilisations, other):
    u = np.array(utilisations)
    best = error_metrics.fitted_utilisation(u)
    assert error_metrics.mape(u / best) <= error_metrics.mape(u / other) + 1e-12
