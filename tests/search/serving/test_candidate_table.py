"""The order of candidates, and of those that tie."""

import numpy as np
import pytest

from meshwright.search.serving.candidate_table import Goal, ranked, table_of

BY_RATE = Goal("cost", 2.0, given_rate=True)


def families_in_order(goal, quantised, **columns):
    columns = {name: np.array(values) for name, values in columns.items()}
    count = len(columns["devices"])
    table = table_of(count, family=np.arange(count), requests_per_s=np.full(count, 5.0), **columns)
    return ranked(table, goal, quantised)["family"].tolist()


def test_of_equal_candidates_the_released_formats_come_first_however_quick_quantised_ones_are():
    columns = {"devices": [8, 8, 8, 8], "latency_s": [1.0, 2.0, 3.0, 0.5]}
    assert families_in_order(BY_RATE, [1, 1, 0, 2], **columns) == [2, 0, 1, 3]
    assert families_in_order(BY_RATE, [], **columns) == [3, 0, 1, 2]


def test_released_formats_win_ties_alone():
    assert families_in_order(BY_RATE, [1, 0], devices=[4, 8], latency_s=[2.0, 1.0]) == [0, 1]


def test_quantised_parts_count_before_pools():
    columns = {"devices": [8, 8], "latency_s": [1.0, 1.0], "second": [0, -1]}
    assert families_in_order(BY_RATE, [0, 1], **columns) == [0, 1]
    assert families_in_order(BY_RATE, [0, 0], **columns) == [1, 0]


@pytest.mark.parametrize(("nearly", "first"), [(1 + 1e-12, 1), (1.01, 0)])
def test_a_difference_by_rounding_is_a_tie(nearly, first):
    table = table_of(
        2, family=np.arange(2), requests_per_s=5 * np.array([nearly, 1.0]), devices=8, latency_s=1.0
    )
    goal = Goal("throughput", 2.0, given_rate=False)
    assert ranked(table, goal, [1, 0])["family"][0] == first
