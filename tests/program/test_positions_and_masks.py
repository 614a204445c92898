"""Which positions ranks have, and what their queries see of others' keys, against masks that are written out."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.program.context_parallel.positions_and_masks import rank_stretches, ring_stretches, tiles

WINDOWS = (None, 2, 5, 13, 30)
CUTS = [(cp, ulysses) for cp in (1, 2, 3, 4, 6, 8) for ulysses in (1, 2, 3, 4) if cp % ulysses == 0]
ORDERS = ("head-tail", "contiguous")
LENGTH = 48


def positions(stretches):
    return np.concatenate([np.arange(*stretch) for stretch in stretches])


def behind(queries, keys):
    return positions(queries)[:, None] - positions(keys)[None]


def seen(queries, keys, window):
    distance = behind(queries, keys)
    return (distance >= 0) & ((distance < window) if window else True)


def in_tile(tile, window):
    rows, columns = (np.arange(stop - start) for start, stop in (tile.rows, tile.columns))
    if tile.sees == "all":
        return np.ones((len(rows), len(columns)), dtype=bool)
    distance = rows[:, None] - columns[None] + tile.behind
    return (distance >= 0) & ((distance < window) if tile.sees == "window" else True)


@pytest.mark.parametrize(("cp", "ulysses"), CUTS)
@pytest.mark.parametrize("order", ORDERS)
def test_ranks_have_every_position_once_and_equally_many(cp, ulysses, order):
    held = [positions(rank_stretches(LENGTH, cp, ulysses, order, place)) for place in range(cp)]
    assert sorted(np.concatenate(held)) == list(range(LENGTH))
    assert {len(of_rank) for of_rank in held} == {LENGTH // cp}


@pytest.mark.parametrize(("cp", "ulysses"), CUTS)
@pytest.mark.parametrize("order", ORDERS)
def test_ranks_that_exchange_heads_have_what_their_ring_rank_has_in_its_order(cp, ulysses, order):
    for outer in range(cp // ulysses):
        parts = [rank_stretches(LENGTH, cp, ulysses, order, outer * ulysses + i) for i in range(ulysses)]
        together = np.concatenate([positions(part) for part in parts])
        assert (together == positions(ring_stretches(LENGTH, cp // ulysses, order, outer))).all()


@pytest.mark.parametrize(("cp", "ulysses"), CUTS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", WINDOWS)
def test_tiles_hold_what_is_seen_once_and_nothing_else(cp, ulysses, order, window):
    everything = ((0, LENGTH),)
    held = [rank_stretches(LENGTH, cp, ulysses, order, place) for place in range(cp)]
    for queries, keys in [*product(held, held), *((of, everything) for of in held)]:
        found = np.zeros((LENGTH, LENGTH), dtype=int)
        for tile in tiles(queries, keys, window):
            found[slice(*tile.rows), slice(*tile.columns)] += in_tile(tile, window)
        expected = seen(queries, keys, window)
        assert (found[: expected.shape[0], : expected.shape[1]] == expected).all(), (queries, keys)


@pytest.mark.parametrize("window", WINDOWS)
def test_every_row_and_column_of_a_tile_sees_something(window):
    held = [rank_stretches(LENGTH, 4, 1, "head-tail", place) for place in range(4)]
    for queries, keys in product(held, held):
        for tile in tiles(queries, keys, window):
            mask = in_tile(tile, window)
            assert mask.any(1).all()
            assert mask.any(0).all()


documents = st.sets(st.integers(1, LENGTH - 1)).map(
    lambda borders: tuple(pairwise(sorted({0, LENGTH} | borders)))
)
"""All documents of a sequence, in order."""


@settings(deadline=None, max_examples=60)
@given(
    cut=st.sampled_from(CUTS),
    order=st.sampled_from(ORDERS),
    window=st.sampled_from(WINDOWS),
    documents=documents,
)
def test_tiles_within_documents_hold_what_is_seen_once_and_nothing_else(cut, order, window, documents):
    ring = cut[0] // cut[1]
    held = [ring_stretches(LENGTH, ring, order, place) for place in range(ring)]
    document = np.repeat(range(len(documents)), [stop - start for start, stop in documents])
    for queries, keys in [*product(held, held), *((of, ((0, LENGTH),)) for of in held)]:
        found = np.zeros((LENGTH, LENGTH), dtype=int)
        for tile in tiles(queries, keys, window, documents):
            found[slice(*tile.rows), slice(*tile.columns)] += in_tile(tile, window)
        alike = document[positions(queries)][:, None] == document[positions(keys)]
        expected = seen(queries, keys, window) & alike
        assert (found[: expected.shape[0], : expected.shape[1]] == expected).all(), (queries, keys)


@pytest.mark.parametrize("window", WINDOWS)
def test_one_document_is_a_sequence_that_is_not_packed(window):
    held = [ring_stretches(LENGTH, 4, "head-tail", place) for place in range(4)]
    for queries, keys in product(held, held):
        assert tiles(queries, keys, window, ((0, LENGTH),)) == tiles(queries, keys, window)


def test_with_head_and_tail_all_ranks_see_equally_much_at_every_step():
    for ring in (2, 4, 8):
        held = [ring_stretches(LENGTH * 8, ring, "head-tail", place) for place in range(ring)]
        for step in range(ring):
            sums = {int(seen(held[i], held[(i - step) % ring], None).sum()) for i in range(ring)}
            assert len(sums) == 1


def test_a_step_of_a_ring_needs_no_mask_but_the_own_keys():
    held = [ring_stretches(LENGTH, 4, "head-tail", place) for place in range(4)]
    for queries, keys in product(held, held):
        (tile,) = tiles(queries, keys)
        assert tile.sees == ("causal" if queries == keys else "all")
