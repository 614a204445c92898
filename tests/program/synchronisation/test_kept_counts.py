from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.synchronisation.kept_counts import chunk_counts, index_bytes, kept_of, share_of


def test_a_share_is_the_decimal_number_that_is_written():
    assert ceil(0.07 * 100) == 8  # binary arithmetic would keep one more
    assert share_of(0.07, 100) == 7
    assert share_of(1, 13) == share_of(1.0, 13) == 13


def test_at_least_one_and_at_most_all_elements_are_kept():
    assert [kept_of(share, 7) for share in (0.001, 0.5, 1.0, 2)] == [1, 4, 7, 7]


@pytest.mark.parametrize(
    ("places", "width"), [(1, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4), (2**32, 4), (2**32 + 1, 8)]
)
def test_indices_take_the_fewest_bytes(places, width):
    assert index_bytes(places) == width


@given(st.integers(1, 500), st.integers(1, 70), st.integers(1, 80))
def test_chunks_hold_all_elements_and_keep_no_more_than_they_have(elements, chunk, keep):
    lengths = [min(chunk, elements - start) for start in range(0, elements, chunk)]
    whole, rest, kept = chunk_counts(elements, chunk, keep)
    assert whole * chunk + rest == elements
    assert kept == sum(min(keep, length) for length in lengths)
