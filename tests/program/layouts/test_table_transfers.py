"""Transfers of a tied table's gradient against brute force: each rank gets the other side's sum of what it holds."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_activation_transfers import parts

from meshwright.program.layouts.table_transfers import (
    balanced,
    busiest_elements,
    held_elements,
    of_rank,
    table_transfers,
)
from meshwright.program.program_parts import ProgramParts

ROWS, WIDTH, RANKS = 13, 3, 8
ENDS = ((0, 0), (1, 1))


@given(embedding=parts(), head=parts(), shards=st.tuples(st.booleans(), st.booleans()))
@settings(deadline=None, max_examples=60)
def test_each_rank_adds_the_other_sides_gradient_of_what_it_holds(embedding, head, shards):
    both = []
    for part, sharded in zip((embedding, head), shards, strict=True):
        degree = part.grid.sizes["cp"] * part.grid.sizes["dp_shard"] if sharded else 1
        both.append(replace_shard(part, degree))
    every = ProgramParts(tuple(both), (0, 1))
    found = list(table_transfers(every, ENDS, ROWS, WIDTH))
    values = np.random.default_rng(0).normal(size=(2, ROWS * WIDTH))
    for side, (part, pipeline_rank) in enumerate(ENDS):
        for rank in every.members(pipeline_rank):
            start, stop = held_elements(every[part], rank, ROWS, WIDTH)
            own, counted = values[side, start:stop].copy(), np.zeros(stop - start)
            for one in of_rank(found, rank)[1]:
                low, high = one.elements
                held = held_elements(every[ENDS[1 - side][0]], one.source, ROWS, WIDTH)
                assert held[0] <= low < high <= held[1]
                own[low - start : high - start] += values[1 - side, low:high]
                counted[low - start : high - start] += 1
            assert (counted == 1).all()
            assert np.array_equal(own, values[side, start:stop] + values[1 - side, start:stop])
    assert busiest_elements(found) >= max(b - a for _, _, (a, b) in found)


def replace_shard(part, degree):
    return replace(part, shape=replace(part.shape, shard=degree))


@given(st.integers(0, 100), st.integers(1, 9), st.booleans())
def test_bounds_cover_all_elements(length, count, first):
    bounds = balanced(length, count, first=first)
    sizes = [b - a for a, b in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(sizes)) == (0, length, count)
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=first)
