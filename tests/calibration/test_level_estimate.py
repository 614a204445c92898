"""The level of a group against generalised least squares, and what far outliers do to it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.calibration.level_estimate import Prior, level_estimate

runs = st.lists(st.tuples(st.floats(-3, 3), st.floats(0.05, 2)), min_size=1, max_size=12)


def arrays(pairs):
    return np.array([error for error, _ in pairs]), np.array([scale for _, scale in pairs])


@given(runs, st.floats(-1, 1), st.floats(0.05, 2))
def test_with_normal_rests_it_is_generalised_least_squares(pairs, mean, between):
    errors, scales = arrays(pairs)
    found = level_estimate(errors, scales, Prior(mean, between), freedom=np.inf)
    ones = np.ones(len(errors))
    covariance = between**2 * np.outer(ones, ones) + np.diag(scales**2)
    gain = between**2 * ones @ np.linalg.inv(covariance)
    assert found.log_factor == pytest.approx(mean + gain @ (errors - mean), abs=1e-8)
    assert found.doubt == pytest.approx(np.sqrt(between**2 - gain @ ones * between**2), rel=1e-6)
    assert found.rows == len(errors)


@given(runs, st.floats(-1, 1), st.floats(0.05, 2))
def test_it_lies_between_the_prior_and_the_runs(pairs, mean, between):
    errors, scales = arrays(pairs)
    found = level_estimate(errors, scales, Prior(mean, between))
    assert min(mean, errors.min()) - 1e-9 <= found.log_factor <= max(mean, errors.max()) + 1e-9
    assert 0 < found.doubt <= between


def test_a_group_without_runs_has_its_prior():
    assert level_estimate(np.zeros(0), np.zeros(0), Prior(0.2, 0.3)).log_factor == 0.2


def test_more_runs_are_shrunk_less_and_doubted_less():
    found = [level_estimate(np.full(n, 0.5), np.full(n, 0.3), Prior(0, 0.2)) for n in (1, 3, 10, 100)]
    levels, doubts = [one.log_factor for one in found], [one.doubt for one in found]
    assert levels == sorted(levels)
    assert doubts == sorted(doubts, reverse=True)
    assert levels[-1] == pytest.approx(0.5, abs=0.02)


def test_a_far_outlier_moves_it_less_than_a_mean():
    errors, scales = np.array([0.1, 0.12, 0.08, 0.11, 3.0]), np.full(5, 0.1)
    robust = level_estimate(errors, scales, Prior(0, 0.5)).log_factor
    plain = level_estimate(errors, scales, Prior(0, 0.5), freedom=np.inf).log_factor
    assert robust == pytest.approx(0.1, abs=0.03)
    assert plain > 0.5
