"""Uneven shards: bounds by weight, the largest shard, and its exchange."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.uneven_shards import largest_over_mean, largest_shard, shard_bounds

WEIGHTS = st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any)


def shape(weights=()):
    return LocalShape(
        micro_batch=1, seq_len=8, cp=1, tp=1, ep=1, etp=1, shard=len(weights) or 4, state_share=weights
    )


@pytest.mark.parametrize(
    ("elements", "weights", "bounds"),
    [
        (8, (3, 0, 1, 4), (0, 3, 3, 4, 8)),
        (10, (1, 1, 1), (0, 4, 7, 10)),
        (7, (0, 1, 1), (0, 0, 4, 7)),
        (1, (1, 5), (0, 1, 1)),
        (0, (1, 3), (0, 0, 0)),
    ],
)
def test_the_rest_goes_to_the_first_ranks_that_have_a_weight(elements, weights, bounds):
    assert shard_bounds(elements, weights) == bounds


@given(st.integers(0, 10**6), WEIGHTS)
def test_shards_are_the_weights_parts_and_together_everything(elements, weights):
    sizes = [stop - start for start, stop in pairwise(shard_bounds(elements, weights))]
    assert sum(sizes) == elements
    for size, weight in zip(sizes, weights, strict=True):
        assert abs(size - elements * weight / sum(weights)) <= 1
        assert weight or not size
    assert largest_shard(elements, shape(tuple(weights))) >= max(sizes)


def test_even_shards_are_rounded_up():
    assert largest_shard(10, shape()) == 3
    assert largest_over_mean(shape()) == 1.0


def test_the_largest_shard_counts():
    assert largest_shard(800, shape((3, 0, 1, 4))) == 400
    assert largest_over_mean(shape((3, 0, 1, 4))) == 2.0
