"""Moves on many orders at once: swap two nodes, move one, reverse a run, swap two blocks.

A run that is reversed is what 2-opt does to a ring; blocks are runs of one length that begin at its multiples, which is
where the groups of a grid lie. (Pipette's moves, arXiv 2405.18093, are the first three and insertions of runs.)
"""

import numpy as np

from meshwright.placement.node_order.problem import Ints


def changed(orders: Ints, rng: np.random.Generator, at: Ints) -> Ints:
    """Each order changed by a move of its own; ``at`` is a place that its move begins with, or −1 for any: (k, n)."""
    count, places = orders.shape
    one = np.where(at < 0, rng.integers(places, size=count), at)[:, None]
    other = ((one[:, 0] + rng.integers(1, places, size=count)) % places)[:, None]
    here = np.arange(places)[None]
    length = _lengths(places)[rng.integers(len(_lengths(places)), size=count)][:, None]
    moves = np.stack([_swapped(here, one, other, 1), _moved(here, one, other), _reversed(here, one, other)])
    moves = np.concatenate([moves, _swapped(here, one, other, length)[None]])
    source = moves[rng.integers(len(moves), size=count), np.arange(count)]
    return np.take_along_axis(orders, source, axis=1)


def _lengths(places: int) -> Ints:
    """Lengths of blocks that divide the places."""
    dividing = [length for length in range(1, places // 2 + 1) if places % length == 0]
    return np.array(dividing or [1])


def _swapped(here: Ints, one: Ints, other: Ints, length: Ints | int) -> Ints:
    """Where each place takes its node from when the blocks around two places change places."""
    first, second = one // length, other // length
    block, shift = here // length, (second - first) * length
    return np.where(block == first, here + shift, np.where(block == second, here - shift, here))


def _moved(here: Ints, one: Ints, other: Ints) -> Ints:
    """Move the node at ``one`` to place ``other``."""
    between = (here >= np.minimum(one, other)) & (here <= np.maximum(one, other))
    step = np.where(one < other, 1, -1)
    return np.where(here == other, one, np.where(between, here + step, here))


def _reversed(here: Ints, one: Ints, other: Ints) -> Ints:
    """Reverse the run between two places."""
    between = (here >= np.minimum(one, other)) & (here <= np.maximum(one, other))
    return np.where(between, one + other - here, here)
