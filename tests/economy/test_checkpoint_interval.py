"""The best interval of checkpoints, and the share of useful time, against each other and against published forms."""

from math import exp, expm1, inf, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.economy.checkpoint_interval import best_interval, useful_share

DAY_S = 86400.0
SECONDS = st.floats(0.01, 1e6)
LONG = st.floats(10.0, 1e8)


def test_the_worked_example_of_the_page():
    assert round(best_interval(60.0, DAY_S)) == 3180
    assert round(useful_share(3180.0, 60.0, 300.0, DAY_S), 4) == 0.9599


@given(write_s=SECONDS, mtbf_s=LONG)
def test_no_other_interval_is_better(write_s, mtbf_s):
    best = best_interval(write_s, mtbf_s)
    share = useful_share(best, write_s, 0.0, mtbf_s)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert useful_share(best * factor, write_s, 0.0, mtbf_s) <= share * (1 + 1e-9)


@given(write_s=SECONDS, mtbf_s=LONG)
def test_the_root_is_a_root(write_s, mtbf_s):
    x = best_interval(write_s, mtbf_s) / mtbf_s
    assert isclose((1 - x) * exp(x), exp(-write_s / mtbf_s), rel_tol=1e-9, abs_tol=1e-15)


@given(work_s=SECONDS, write_s=SECONDS, restart_s=SECONDS, mtbf_s=st.floats(1e5, 1e9))
def test_the_share_is_what_the_formula_says(work_s, write_s, restart_s, mtbf_s):
    said = work_s / (mtbf_s * exp(restart_s / mtbf_s) * expm1((work_s + write_s) / mtbf_s))
    assert useful_share(work_s, write_s, restart_s, mtbf_s) == pytest.approx(said, rel=1e-9)


@given(write_s=SECONDS, restart_s=SECONDS, mtbf_s=LONG, factor=st.floats(1.0, 100.0))
def test_more_of_anything_bad_is_never_better(write_s, restart_s, mtbf_s, factor):
    def share(write_s, restart_s, mtbf_s):
        return useful_share(best_interval(write_s, mtbf_s), write_s, restart_s, mtbf_s)

    usual = share(write_s, restart_s, mtbf_s) * (1 + 1e-9)
    assert 0 <= usual <= 1 + 1e-6
    assert share(write_s * factor, restart_s, mtbf_s) <= usual
    assert share(write_s, restart_s * factor, mtbf_s) <= usual
    assert share(write_s, restart_s, mtbf_s / factor) <= usual


def test_where_nothing_fails_nothing_is_written():
    assert best_interval(60.0, inf) == inf
    assert useful_share(inf, 60.0, 300.0, inf) == 1.0
    assert useful_share(60.0, 60.0, 300.0, inf) == 0.5


def test_a_share_too_small_for_a_number_is_0():
    assert useful_share(1.0, 1.0, 1e9, 1.0) == 0.0
    assert useful_share(1.0, 1e9, 1.0, 1.0) == 0.0
