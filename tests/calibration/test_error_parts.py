"""The parts of the error against errors that were drawn with known parts."""

from math import hypot

import numpy as np
import pytest
from error_parts import parts_of, student, whole_sigma
from left_out_page import binomial_range, coverage

from meshwright.cost.uncertainty.interval import QUANTILE

KNOWN = (0.12, 0.08, 0.05)


def drawn(stack, group, run, sources=60, groups=12, runs=15, seed=0):
    """Errors of many sources with these standard deviations of their parts."""
    rng = np.random.default_rng(seed)
    return {
        f"source {i}": [
            own + rng.normal(0, group) + rng.normal(0, run, runs)
            for own in [rng.normal(0, stack)]
            for _ in range(groups)
        ]
        for i in range(sources)
    }


def test_known_parts_are_found():
    found = parts_of(drawn(*KNOWN), stack_is_known=False)
    assert found.sigma == pytest.approx(hypot(*KNOWN), rel=0.1)
    assert (found.stack, found.group, found.run) == pytest.approx(KNOWN, rel=0.25)
    assert (found.runs, found.sources) == (60 * 12 * 15, 60)


def test_a_known_stack_has_no_part_of_its_own():
    found = parts_of(drawn(0.0, *KNOWN[1:]), stack_is_known=True)
    assert found.stack == 0.0
    assert found.quantile == QUANTILE
    assert (found.group, found.run) == pytest.approx(KNOWN[1:], rel=0.2)


def test_the_whole_is_what_holds_80_percent_however_the_errors_are_shaped():
    wild = drawn(*KNOWN)
    wild["source 0"] = [np.full(15, 3.0)]
    for groups in (drawn(*KNOWN), wild):
        most = QUANTILE * whole_sigma(groups)
        held = [np.mean(np.abs(np.concatenate(own)) <= most) for own in groups.values()]
        assert np.mean(held) == pytest.approx(0.8, abs=0.02)


def test_sources_weigh_the_same_however_many_runs_they_have():
    groups = {"large": [np.full(1000, 0.1)], **{f"small {i}": [np.full(2, 0.3)] for i in range(4)}}
    assert whole_sigma(groups) == pytest.approx(0.3 / QUANTILE)


def test_few_sources_need_a_wider_quantile():
    assert student(9) == 1.397
    assert [student(n) for n in (2, 3, 9, 16, 17, 100)] == sorted(
        (student(n) for n in (2, 3, 9, 16, 17, 100)), reverse=True
    )
    assert student(1) == student(2) == 3.078
    assert student(100) == QUANTILE


def test_coverage_is_that_of_the_interval_of_all_other_sources():
    groups = {**drawn(*KNOWN, sources=10), "strange": [np.full(20, 5.0)], "exact": [np.zeros(20)]}
    held = coverage(groups)
    assert held["strange"] == (0.0, 20)
    assert held["exact"] == (1.0, 20)


def test_the_range_of_a_share_narrows_with_runs():
    assert binomial_range(0.5, 100) == pytest.approx((0.44, 0.56), abs=0.01)
    low, high = binomial_range(0.8, 20)
    assert low < 0.8 < high
    assert binomial_range(1.0, 50) == (1.0, 1.0)
