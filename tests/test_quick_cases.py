"""Which cases of a parametrised test run in every test."""

from itertools import product

import pytest

from quick_cases import covering

pytest_plugins = ["pytester"]


def test_cases_cover_every_value_and_then_as_many_pairs_as_can_be():
    cases = list(product(range(4), range(3), range(2)))
    values = {(place, value) for case in cases for place, value in enumerate(case)}
    assert {pair for place in covering(cases, 4) for pair in enumerate(cases[place])} == values
    first_two = {cases[place][:2] for place in covering(cases, 12)}
    assert len(first_two) == 12


def test_cases_of_one_parameter_lie_evenly():
    assert covering([(place,) for place in range(10)], 3) == {0, 3, 6}
    assert covering([(place, place) for place in range(10)], 2) == {0, 5}


def test_no_more_cases_than_there_are():
    assert covering([(0, 0), (0, 1)], 5) == {0, 1}


@pytest.mark.parametrize("wanted", ["not slow", "slow"])
def test_the_others_are_slow(pytester, wanted):
    pytester.makeconftest("pytest_plugins = ['quick_cases']")
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  quick_cases(n)")
    pytester.makepyfile("""
        from pytest import mark as marks, param

        @marks.quick_cases(2)
        @marks.parametrize("a", [1, 2])
        @marks.parametrize("b", [1, param(2, marks=marks.slow), 3])
        def test(a, b):
            pass
    """)
    counts = pytester.runpytest_inprocess("-m", wanted, "-p", "no:randomly").parseoutcomes()
    assert (
        counts == {"passed": 2, "deselected": 4} if wanted == "not slow" else {"passed": 4, "deselected": 2}
    )
