"""Borders between pieces of a chain of layers: every way where there are few, those near the even one otherwise."""

from itertools import product

import pytest

from meshwright.search.partition.partial_partitions import piece_sizes


@pytest.mark.parametrize(("layers", "least"), [(6, (1, 2)), (7, (1, 1, 1)), (5, (0, 2, 1)), (4, (4,))])
def test_few_ways_are_all_there_are(layers, least):
    sizes, complete = piece_sizes(layers, least, most=1000)
    ways = {
        way
        for way in product(range(layers + 1), repeat=len(least))
        if sum(way) == layers and all(size >= few for size, few in zip(way, least, strict=True))
    }
    assert complete
    assert sorted(map(tuple, sizes)) == sorted(ways)


@pytest.mark.parametrize(("layers", "least"), [(61, (1, 2, 1)), (80, (1, 1, 1, 1))])
def test_of_many_ways_those_are_tried_that_move_no_border_far(layers, least):
    sizes, complete = piece_sizes(layers, least, most=200)
    assert not complete
    assert 50 < len(sizes) <= 200
    assert len({tuple(way) for way in sizes}) == len(sizes)
    assert (sizes.sum(1) == layers).all()
    assert (sizes >= least).all()
    borders = sizes.cumsum(1)[:, :-1]
    assert (borders.max(0) - borders.min(0) == borders.max(0)[0] - borders.min(0)[0]).all()
