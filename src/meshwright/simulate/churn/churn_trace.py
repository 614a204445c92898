"""Poisson events of peers that leave, and of their replacements that join a fixed time later.

Every peer that is there leaves with the same rate; ``down_s`` later another one joins in its place. The events follow
from the seed alone, so that all routings see the same ones.
"""

import heapq
from math import inf
from random import Random
from typing import NamedTuple


class Change(NamedTuple):
    """A peer that leaves or joins at a time in seconds."""

    at_s: float
    peer: int
    joins: bool


class ChurnTrace:
    """The changes of ``peers`` peers in their order; ``per_s`` is the rate at which each of them leaves."""

    def __init__(self, peers: int, per_s: float, down_s: float, seed: int) -> None:
        self._per_s, self._down_s, self._random = per_s, down_s, Random(seed)
        self._changes = [self._leave(peer, 0.0) for peer in range(peers)] if per_s else []
        heapq.heapify(self._changes)

    @property
    def next_s(self) -> float:
        """The time of the next change; infinite if there is none."""
        return self._changes[0].at_s if self._changes else inf

    def pop(self) -> Change:
        """Return the next change."""
        change = heapq.heappop(self._changes)
        if change.joins:
            heapq.heappush(self._changes, self._leave(change.peer, change.at_s))
        else:
            heapq.heappush(self._changes, Change(change.at_s + self._down_s, change.peer, True))
        return change

    def _leave(self, peer: int, after_s: float) -> Change:
        return Change(after_s + self._random.expovariate(self._per_s), peer, False)
