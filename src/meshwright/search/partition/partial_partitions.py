"""Partial partitions: the layers of the first ranks, as arrays with a row for each alternative."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import comb

import numpy as np
from numpy.typing import NDArray

from meshwright.search.partition.chunk_directions import DirectedChunk
from meshwright.search.partition.layer_chain import Floats, Ints

Rows = Ints | NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class States:
    """n ways. ``low`` and ``high`` are the borders of what is left of every piece: (n, pieces).

    ``largest`` is the largest load so far, ``before`` the row of the ranks before; ``shares`` and ``modes`` are the
    layers and the mode of this rank's stage on each leg that was served: (n, legs). ``goal`` and ``limit`` are the
    least that what the rank has got may cost, (n, moments) each.
    """

    low: Ints
    high: Ints
    largest: Floats
    before: Ints
    shares: Ints
    modes: Ints
    goal: Floats
    limit: Floats

    def __len__(self) -> int:
        return len(self.largest)

    def take(self, rows: Rows) -> "States":
        """Return the states at ``rows``."""
        return States(*(getattr(self, field.name)[rows] for field in fields(self)))

    def turn(self, goal: Floats, limit: Floats) -> "States":
        """Return the states before the next rank, whose loads without layers are ``goal`` and ``limit``: (moments,)."""
        rows = len(self)
        return replace(
            self,
            before=np.arange(rows),
            shares=np.zeros((rows, 0), dtype=np.int64),
            modes=np.zeros((rows, 0), dtype=np.int64),
            goal=np.tile(goal, (rows, 1)),
            limit=np.tile(limit, (rows, 1)),
        )

    def given(self, leg: DirectedChunk, share: Ints) -> "States":
        """Return the states with ``share`` layers taken from the leg's piece."""
        low, high = self.low.copy(), self.high.copy()
        if leg.upward:
            low[:, leg.piece] += share
        else:
            high[:, leg.piece] -= share
        shares = np.concatenate([self.shares, share[:, None]], 1)
        return replace(self, low=low, high=high, shares=shares)

    def share(self, legs: Sequence[DirectedChunk], index: int) -> tuple[Ints, Ints]:
        """First and last place of what the rank has got on a leg."""
        piece = legs[index].piece
        if legs[index].upward:
            return self.low[:, piece] - self.shares[:, index], self.low[:, piece]
        return self.high[:, piece], self.high[:, piece] + self.shares[:, index]


def beginnings(sizes: Ints) -> States:
    """Before the first rank: (n, pieces) layers in every piece."""
    rows = len(sizes)
    borders = np.concatenate([np.zeros((rows, 1), dtype=np.int64), np.cumsum(sizes, 1)], 1)
    nothing = np.zeros((rows, 0))
    whole = nothing.astype(np.int64)
    return States(
        borders[:, :-1], borders[:, 1:], np.zeros(rows), np.arange(rows), whole, whole, nothing, nothing
    )


def piece_sizes(layers: int, least: Sequence[int], most: int) -> tuple[Ints, bool]:
    """Ways to lay the borders between pieces that have at least so many layers; whether these are all ways.

    Beyond ``most`` ways only those near the even one.
    """
    spare, parts = layers - sum(least), len(least)
    if comb(spare + parts - 1, parts - 1) <= most:
        return _compositions(spare, parts) + np.array(least), True
    reach = max(n for n in range(spare + 1) if (2 * n + 1) ** (parts - 1) <= most)
    even = np.diff([spare * part // parts for part in range(parts + 1)])
    offsets = np.array(list(product(range(-reach, reach + 1), repeat=parts - 1)), dtype=np.int64)
    moved = np.concatenate([offsets, np.zeros((len(offsets), 1), dtype=np.int64)], 1)
    more = even + moved - np.roll(moved, 1, axis=1)
    return more[(more >= 0).all(1)] + np.array(least), False


def _compositions(total: int, parts: int) -> Ints:
    """Every way to write a total as so many numbers from 0."""
    rows = np.zeros((1, 0), dtype=np.int64)
    for _ in range(parts - 1):
        left = total - rows.sum(1)
        owner = np.repeat(np.arange(len(rows)), left + 1)
        rows = np.concatenate([rows[owner], counted(owner, left + 1)[:, None]], 1)
    return np.concatenate([rows, total - rows.sum(1, keepdims=True)], 1)


def counted(owner: Ints, counts: Ints) -> Ints:
    """0, 1, 2, … within every run of equal ``owner``, where owner i has a run of ``counts[i]``."""
    return np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
