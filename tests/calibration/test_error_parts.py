"""The parts of the error against errors that were drawn with known parts."""

from math import hypot

import numpy as np
import pytest
from error_parts import Errors, joined, parts_of, student, whole_sigma
from left_out_page import binomial_range, coverage

from meshwright.cost.uncertainty.interval import QUANTILE

KNOWN = (0.12, 0.08, 0.05)


def known(errors, constants=0.0):
    """Errors of runs whose constants leave a spread open."""
    return Errors(np.asarray(errors), np.full(len(errors), constants))


def drawn(stack, group, run, sources=60, groups=12, runs=15, seed=0):
    """Errors of many sources with these standard deviations of their parts."""
    rng = np.random.default_rng(seed)
    return {
        f"source {i}": [
            known(own + rng.normal(0, group) + rng.normal(0, run, runs))
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
    wild["source 0"] = [known(np.full(15, 3.0))]
    for groups in (drawn(*KNOWN), wild):
        sigma = whole_sigma(groups)
        held = [np.mean(joined(own).within(sigma, QUANTILE)) for own in groups.values()]
        assert np.mean(held) == pytest.approx(0.8, abs=0.02)


def test_sources_weigh_the_same_however_many_runs_they_have():
    groups = {
        "large": [known(np.full(1000, 0.1))],
        **{f"small {i}": [known(np.full(2, 0.3))] for i in range(4)},
    }
    assert whole_sigma(groups) == pytest.approx(0.3 / QUANTILE)


def test_what_the_constants_explain_is_not_counted_again():
    rng = np.random.default_rng(1)
    open_, rest = 0.3, 0.1
    runs = [rng.normal(0, hypot(open_, rest), 400) for _ in range(20)]
    groups = {
        f"source {i}": [known(half, open_) for half in (errors[:200], errors[200:])]
        for i, errors in enumerate(runs)
    }
    assert whole_sigma(groups) == pytest.approx(rest, rel=0.3)
    assert parts_of(groups, stack_is_known=False).sigma == pytest.approx(rest, rel=0.3)
    assert np.mean([joined(own).within(rest, QUANTILE).mean() for own in groups.values()]) == pytest.approx(
        0.8, abs=0.02
    )


def test_constants_that_explain_everything_leave_nothing():
    assert whole_sigma({"one": [known(np.full(10, 0.01), 0.5)]}) == 0.0


def test_few_sources_need_a_wider_quantile():
    assert student(9) == 1.397
    assert [student(n) for n in (2, 3, 9, 16, 17, 100)] == sorted(
        (student(n) for n in (2, 3, 9, 16, 17, 100)), reverse=True
    )
    assert student(1) == student(2) == 3.078
    assert student(100) == QUANTILE


def test_coverage_is_that_of_the_interval_of_all_other_sources():
    groups = {
        **drawn(*KNOWN, sources=10),
        "strange": [known(np.full(20, 5.0))],
        "exact": [known(np.zeros(20))],
    }
    held = coverage(groups)
    assert held["strange"] == (0.0, 20)
    assert held["exact"] == (1.0, 20)


def test_the_range_of_a_share_narrows_with_runs():
    assert binomial_range(0.5, 100) == pytest.approx((0.44, 0.56), abs=0.01)
    low, high = binomial_range(0.8, 20)
    assert low < 0.8 < high
    assert binomial_range(1.0, 50) == (1.0, 1.0)
