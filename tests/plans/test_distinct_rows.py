"""Equal rows of columns, against a dictionary."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plans.arrays.distinct_rows import ROOM, distinct, map_distinct_rows, row_codes, unique_rows

VALUES = st.one_of(st.integers(0, 3), st.sampled_from((0, 7, 2**20, ROOM, ROOM + 1, 2**40, 2**62)))
ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=1, max_size=40)
)


def columns_of(rows):
    return [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]


@given(ROWS)
@settings(max_examples=100)
def test_rows_are_equal_where_all_their_values_are(rows):
    found = distinct(columns_of(rows))
    different = sorted(set(rows))
    assert [rows[first] for first in found.first] == different
    assert found.first.tolist() == [rows.index(row) for row in different]
    assert [different[which] for which in found.inverse] == rows
    groups = [group.tolist() for group in found.groups()]
    assert groups == [[at for at, row in enumerate(rows) if row == one] for one in different]


@given(ROWS)
def test_codes_are_equal_where_rows_are(rows):
    codes = row_codes(columns_of(rows)).tolist()
    assert len(set(zip(codes, rows, strict=True))) == len(set(codes)) == len(set(rows))


@given(ROWS)
def test_each_different_row_is_looked_up_once(rows):
    asked = []

    def total(*row):
        asked.append(row)
        return float(sum(row)), float(row[0])

    found = map_distinct_rows(total, columns_of(rows))
    assert found.tolist() == [[float(sum(row)), float(row[0])] for row in rows]
    assert sorted(asked) == sorted(set(rows))


@given(ROWS)
def test_different_rows_are_in_ascending_order(rows):
    assert unique_rows(np.array(rows)).tolist() == [list(row) for row in sorted(set(rows))]
    assert unique_rows(np.array([rows, rows])).tolist() == [[list(row) for row in rows]]


def test_no_rows_have_no_groups():
    nothing = np.zeros(0, dtype=np.int64)
    assert distinct([nothing]).groups() == []
    assert map_distinct_rows(lambda value: value, [nothing]).size == 0
