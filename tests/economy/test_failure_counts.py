"""Quantiles of Poisson counts against sums of probabilities."""

from math import exp, lgamma, log
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.economy.failure_counts import SUMMED_TO, poisson_quantiles


def by_sums(probability, mean):
    """The least count up to which probabilities sum to at least ``probability``."""
    count, total = 0, exp(-mean)
    while total < probability:
        count += 1
        total += exp(count * log(mean) - mean - lgamma(count + 1))
    return count


def found(probability, mean):
    normal = NormalDist().inv_cdf(probability)
    return float(poisson_quantiles(np.array([probability]), np.array([normal]), np.array([mean]))[0])


@given(probability=st.floats(0.0005, 0.9995), mean=st.floats(0.001, SUMMED_TO))
def test_small_means_are_exact(probability, mean):
    assert found(probability, mean) == by_sums(probability, mean)


@given(probability=st.floats(0.0005, 0.9995), mean=st.floats(SUMMED_TO, 600.0))
def test_large_means_are_right_to_a_failure(probability, mean):
    assert found(probability, mean) == pytest.approx(by_sums(probability, mean), abs=1)


def test_nothing_fails_where_nothing_is_expected():
    assert found(0.999, 0.0) == 0
