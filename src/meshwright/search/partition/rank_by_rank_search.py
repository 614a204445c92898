"""Search for better cuts with several stages per rank, rank by rank, over all or the most promising states.

The chain is dealt out rank by rank. A leg of the stages visits all ranks upwards or downwards, so what the ranks
0 … r have of it is the beginning or the end of its layers, and what is left is a piece (``chunk_directions.py``). A
state is the tuple of pieces that are left; it keeps the way on which the largest load so far is least:

    best(state after rank r) = min over shares of rank r of max(best(state before), load of rank r).

Pieces of equal layers in equal order are one state (``kinds_of``). A state is left out when its largest load
is no better than what is known, or what is left is more than the other ranks may have below that. So the best state
after the last rank is the best cut, and where there is none the known one is: with w layers to choose from for a stage
that takes O(P·L²·w²) shares for stages in a V and at most O(P·L^(2V−1)·w^V) for V legs in a loop, far fewer the
better the known cut is. Where more than ``width`` states come together, those go on whose largest load, with what is
left spread evenly, is least; then nothing is proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from meshwright.search.partition.chunk_directions import DirectedChunk
from meshwright.search.partition.layer_chain import Cut, Floats, Ints, Measure
from meshwright.search.partition.objective import ALIKE, Task, kinds_of, pieces_of
from meshwright.search.partition.partial_partitions import States, beginnings, counted, piece_sizes

SHARES_PER_STATE = 100
MOST_NUMBERS = 2**22
"""Rows at work: so many for a state that may go on, and so many numbers of all rows together."""


@dataclass(eq=False)
class RankByRankSearch:
    """Deals out a chain; ``known`` is the load that is to be improved on. ``complete``: no state was left out."""

    task: Task
    legs: tuple[DirectedChunk, ...]
    known: float
    width: int
    complete: bool = field(default=True, init=False)

    def better(self) -> Cut | None:
        """Return the best cut below the known load; None where none was found."""
        names = pieces_of(kinds_of(self.task))
        states, history = self._begun(), list[States]()
        for rank in range(self.task.chain.ranks):
            states = self._narrowed(_merged(self._dealt(states, rank), names), rank)
            history.append(states)
        return _traced(history, self.legs) if len(states) else None

    @property
    def _below(self) -> float:
        return float(np.nextafter(self.known * (1 - ALIKE), 0))

    def _begun(self) -> States:
        least = [self._needed(piece, 0) for piece in range(self.legs[-1].piece + 1)]
        sizes, every = piece_sizes(self.task.chain.layers, least, SHARES_PER_STATE * self.width)
        self.complete &= every
        return self._narrowed(beginnings(sizes), -1)

    def _needed(self, piece: int, rank: int) -> int:
        """Return the fewest layers that ranks from ``rank`` on take from a piece."""
        return (self.task.chain.ranks - rank) * sum(leg.piece == piece for leg in self.legs)

    def _dealt(self, states: States, rank: int) -> States:
        """Every share of a rank in every state that may still become better than what is known."""
        goal, limit = self.task.goal, self.task.limit
        states = states.turn(*(np.full(m.costs.shape[1], m.base[rank]) for m in (goal, limit)))
        for index, leg in enumerate(self.legs):
            later = sum(other.piece == leg.piece for other in self.legs[index + 1 :])
            kept = self._needed(leg.piece, rank + 1) + later
            states = self._thinned(self._served(states, leg, rank, kept))
        states = states.take(self._hopeful(states, rank))
        states = in_best_modes(self.task, states, self.legs, rank)
        return states.take(states.largest <= self._below)

    def _served(self, states: States, leg: DirectedChunk, rank: int, kept: int) -> States:
        """Every number of layers for a leg's stage; ``kept`` of the piece's are for others, with none it takes all."""
        left = states.high[:, leg.piece] - states.low[:, leg.piece]
        least = np.ones_like(left) if kept else left
        most = np.minimum(left - kept, self._affordable(states, leg, rank))
        counts = np.maximum(0, most - least + 1)
        owner = np.repeat(np.arange(len(states)), counts)
        share = least[owner] + counted(owner, counts)
        taken = states.take(owner)
        begin = taken.low[:, leg.piece] if leg.upward else taken.high[:, leg.piece] - share
        goal, limit = (
            (sums[:, begin + share] - sums[:, begin]).T
            for sums in (m.sums_at_least[:, leg.stages[rank]] for m in (self.task.goal, self.task.limit))
        )
        return replace(taken, goal=taken.goal + goal, limit=taken.limit + limit).given(leg, share)

    def _affordable(self, states: States, leg: DirectedChunk, rank: int) -> Ints:
        """Return the most layers that a stage may take; costs are not negative, so fewer fit too."""
        most = states.high[:, leg.piece] - states.low[:, leg.piece]
        for had, measure, ceiling in (
            (states.goal, self.task.goal, self._below),
            (states.limit, self.task.limit, float(self.task.ceiling[rank])),
        ):
            for moment, sums in enumerate(measure.sums_at_least[:, leg.stages[rank]]):
                most = np.minimum(most, _reach(sums, states, leg, ceiling - had[:, moment]))
        return most

    def _hopeful(self, states: States, rank: int) -> NDArray[np.bool_]:
        """States whose rest may be dealt out below what is known."""
        task, rest = self.task, slice(rank + 1, None)
        good = np.ones(len(states), dtype=np.bool_)
        for measure, most in (
            (task.goal, np.full(task.chain.ranks, self._below)),
            (task.limit, task.ceiling),
        ):
            room = float((most - measure.base)[rest].sum())
            good &= _left(measure, states) <= room + ALIKE * max(1.0, abs(room))
        return good

    def _thinned(self, states: States) -> States:
        """So few that they fit into memory, evenly chosen."""
        numbers = (states.goal.shape[1] + states.limit.shape[1]) * len(self.task.goal.costs)
        most = min(SHARES_PER_STATE * self.width, MOST_NUMBERS // numbers)
        if len(states) <= most:
            return states
        self.complete = False
        return states.take(np.linspace(0, len(states) - 1, most).astype(np.int64))

    def _narrowed(self, states: States, rank: int) -> States:
        """Return the most promising states."""
        if len(states) <= self.width:
            return states
        self.complete = False
        goal, rest = self.task.goal, slice(rank + 1, None)
        coming = (_left(goal, states) + goal.base[rest].sum()) / max(1, len(goal.base[rest]))
        uneven = np.ptp(states.high - states.low, axis=1)
        order = np.lexsort((uneven, np.maximum(states.largest, coming)))
        return states.take(order[: self.width])


def _reach(sums: Floats, states: States, leg: DirectedChunk, room: Floats) -> Ints:
    """Return the number of layers of a leg's piece that cost no more than the room."""
    low, high = states.low[:, leg.piece], states.high[:, leg.piece]
    if leg.upward:
        return np.asarray(np.searchsorted(sums, sums[low] + room, side="right") - 1 - low)
    return np.asarray(high - np.searchsorted(sums, sums[high] - room, side="left"))


def _left(measure: Measure, states: States) -> Floats:
    """Return the least cost of the remaining pieces: (n,)."""
    least = measure.least
    return np.asarray((least[:, states.high] - least[:, states.low]).sum(2).max(0))


def _merged(states: States, names: Ints) -> States:
    """Of states with equal pieces the one whose largest load is least."""
    codes, base = np.zeros(len(states), dtype=np.int64), int(names.max()) + 1
    for column in names[states.low, states.high].T:
        codes = np.unique(codes * base + column, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((states.largest, codes))
    _, first = np.unique(codes[order], return_index=True)
    return states.take(order[first])


def _traced(history: list[States], legs: tuple[DirectedChunk, ...]) -> Cut:
    """Trace the cut back from the best state after the last rank."""
    stages = len(history) * len(legs)
    shares, modes = [0] * stages, [0] * stages
    row = int(history[-1].largest.argmin())
    for rank in reversed(range(len(history))):
        states = history[rank]
        for index, leg in enumerate(legs):
            shares[leg.stages[rank]] = int(states.shares[row, index])
            modes[leg.stages[rank]] = int(states.modes[row, index])
        row = int(states.before[row])
    return Cut((0, *np.cumsum(shares).tolist()), tuple(modes))


def in_best_modes(task: Task, states: States, legs: Sequence[DirectedChunk], rank: int) -> States:
    """Return states in the modes with the least load of their rank, without those above the limit in all."""
    modes = len(task.goal.costs)
    goal, limit = (_costs(measure, states, legs, rank) for measure in (task.goal, task.limit))
    best = np.full(len(states), np.inf)
    chosen = np.zeros((len(states), len(legs)), dtype=np.int64)
    for combination in product(range(modes), repeat=len(legs)):
        load = _together(goal, combination) + task.goal.base[rank]
        fits = _together(limit, combination) + task.limit.base[rank] <= task.ceiling[rank]
        better = fits & (load < best)
        best = np.where(better, load, best)
        chosen[better] = combination
    largest = np.maximum(states.largest, best)
    return replace(states, largest=largest, modes=chosen).take(np.isfinite(best))


def _costs(measure: Measure, states: States, legs: Sequence[DirectedChunk], rank: int) -> list[Floats]:
    """Return the cost of every leg's stage in every mode: (modes, moments, n) each."""
    result = []
    for index, leg in enumerate(legs):
        first, last = states.share(legs, index)
        sums = measure.sums[:, :, leg.stages[rank]]
        result.append(sums[..., last] - sums[..., first])
    return result


def _together(costs: Sequence[Floats], combination: Sequence[int]) -> Floats:
    """Return the sum of a rank's stages in one combination of modes, largest over the moments: (n,)."""
    total = sum((of_leg[mode] for of_leg, mode in zip(costs, combination, strict=True)), start=np.zeros(1))
    return np.asarray(total.max(0))
