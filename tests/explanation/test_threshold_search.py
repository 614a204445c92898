"""Brackets against thresholds that are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.explanation.threshold_search import LADDER, PRECISION, first_change, rungs

UP, DOWN = rungs(True, float("inf")), rungs(False, 1.0)


def test_ladders_lead_away_from_one_and_stop_where_the_model_does():
    assert list(UP) == sorted(UP) == list(LADDER)
    assert list(DOWN) == sorted(DOWN, reverse=True)
    assert rungs(True, 1.5) == (1.05, 1.1, 1.25, 1.5)
    assert rungs(True, 1.0) == ()


@given(threshold=st.floats(1.0001, 4.0))
def test_upwards_the_answer_changes_at_the_new_end_and_not_one_percent_before(threshold):
    bracket = first_change(lambda factor: factor < threshold, UP, bisect=True)
    assert bracket.old < threshold <= bracket.new
    assert 1 + 0.99 * (bracket.new - 1) < threshold


@given(threshold=st.floats(0.25, 0.9999))
def test_downwards_too(threshold):
    bracket = first_change(lambda factor: factor > threshold, DOWN, bisect=True)
    assert bracket.new <= threshold < bracket.old
    assert 1 + 0.99 * (bracket.new - 1) > threshold


@given(threshold=st.floats(1.0001, 4.0))
def test_without_bisection_the_ends_are_rungs(threshold):
    bracket = first_change(lambda factor: factor < threshold, UP, bisect=False)
    assert bracket.new in UP
    assert bracket.old == max([1.0, *(rung for rung in UP if rung < bracket.new)])


@pytest.mark.parametrize("ladder", [UP, DOWN, ()])
def test_where_nothing_changes_there_is_no_bracket(ladder):
    assert first_change(lambda factor: True, ladder, bisect=True) is None


def test_the_precision_is_finer_than_what_is_promised():
    assert PRECISION < 0.01
