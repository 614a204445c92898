"""Differences of parts sum to the difference of the whole, and ties are what the interval says."""

import pytest
from explained_cases import every_case
from hypothesis import given
from hypothesis import strategies as st

from meshwright.explanation.prediction_parts import (
    bytes_in_words,
    compared_times,
    differences,
    is_tie,
    seconds_in_words,
)

PARTS = st.dictionaries(st.sampled_from(["compute", "tp", "dp", "bubble"]), st.floats(0, 100), max_size=4)


@given(own=PARTS, other=PARTS)
def test_differences_sum_to_the_difference_and_the_largest_comes_first(own, other):
    found = differences(own, other)
    assert sum(found.values()) == pytest.approx(sum(other.values()) - sum(own.values()), abs=1e-9)
    assert [abs(value) for value in found.values()] == sorted(map(abs, found.values()), reverse=True)
    assert 0.0 not in found.values()
    assert differences(other, own) == {name: -value for name, value in found.items()}


@pytest.mark.slow
def test_those_of_every_plan_beside_do():
    for explained in every_case():
        own = explained.subject.forecast
        for other in (*explained.choices, *explained.rivals, *(one for _, one in explained.schedule.others)):
            data = other.to_json()
            assert sum(data["difference_s"].values()) == pytest.approx(data["step_time_s"] - own.step_s)
            assert sum(data["difference_bytes"].values()) == pytest.approx(
                data["memory_bytes"] - own.total_bytes
            )


def test_what_is_small_beside_the_rest_is_not_told():
    assert seconds_in_words({"bubble": 0.41, "tp": -0.12, "optimizer": 1e-6}) == (
        "+410.000 ms bubble, −120.000 ms tp exchanges"
    )
    assert bytes_in_words({"activations": 3 * 2**30}) == "+3.00 GiB activations"
    assert seconds_in_words({}) == ""


def test_a_tie_is_called_one():
    assert compared_times(10.0, 10.5, 1.1) == "10.500 s, 5.0% slower, a tie"
    assert compared_times(10.0, 11.5, 1.1) == "11.500 s, 15.0% slower"
    assert compared_times(10.0, 10.0, 1.1) == "10.000 s, equal"
    assert compared_times(10.0, 9.5, 1.0) == "9.500 s, 5.0% faster"
    assert is_tie(11.0, 10.0, 1.1)
    assert is_tie(10.0, 11.0, 1.1)
    assert not is_tie(10.0, 11.1, 1.1)
