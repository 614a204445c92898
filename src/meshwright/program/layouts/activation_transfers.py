"""Compute the activations of each rank between two blocks, and the transfers from one layout to another. Pure.

Between blocks an activation is (positions, sequences, hidden). A rank holds the sequences of its data-parallel replica
and, of each, the positions of its place along cp, cut over tp with sequence parallelism. Without it all ranks of tp
hold the same: *copies*. A rank of the next layout takes what it needs from whoever holds it: from itself if it does, of
several copies from the one whose place among its pipeline rank's ranks is nearest. Gradients move the other way round
by the same rule: those of copies are copies too.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from meshwright.program.context_parallel.positions_and_masks import (
    Stretch,
    Stretches,
    part_of_stretches,
    rank_stretches,
)
from meshwright.program.program_parts import Part


class HeldActivations(NamedTuple):
    """A range of the sequences of one micro-batch, and stretches of positions of each, in the order of a rank."""

    sequences: Stretch
    positions: Stretches


class Transfer(NamedTuple):
    """Positions of some sequences that one rank gives to another, or keeps (``source`` = ``target``)."""

    source: int
    target: int
    sequences: Stretch
    positions: Stretches

    @property
    def tokens(self) -> int:
        """Tokens that are given."""
        return length(self.sequences) * sum(map(length, self.positions))


def length(stretch: Stretch) -> int:
    """Elements of a stretch."""
    return stretch[1] - stretch[0]


def held_positions(part: Part, rank: int) -> Stretches:
    """Return the positions that a rank holds inside the tensor-parallel region, in its order."""
    shape, place = part.shape, part.grid.coordinates(rank)["cp"]
    return rank_stretches(
        int(shape.seq_len), int(shape.cp), int(shape.ulysses), part.mode.context.pieces, place
    )


def held_between_blocks(part: Part, rank: int) -> HeldActivations:
    """Return what a rank holds of a micro-batch between two blocks of a part."""
    held = held_positions(part, rank)
    if part.mode.sequence_parallel:
        step, at = sum(map(length, held)) // int(part.shape.tp), part.grid.coordinates(rank)["tp"]
        held = part_of_stretches(held, at * step, (at + 1) * step)
    return HeldActivations(part.sequences_of(rank), held)


def transfers(source: Part, target: Part, givers: Sequence[int], takers: Sequence[int]) -> Iterator[Transfer]:
    """Yield what each of ``takers``, ranks of ``target``, takes from ``givers``, ranks of ``source``.

    Both are the ranks of a pipeline rank, in order.
    """
    copies: dict[HeldActivations, list[int]] = defaultdict(list)
    for place, rank in enumerate(givers):
        copies[held_between_blocks(source, rank)].append(place)
    by_sequences: dict[Stretch, list[HeldActivations]] = defaultdict(list)
    for held in copies:
        by_sequences[held.sequences].append(held)
    runs = sorted(by_sequences)
    starts, stops = [start for start, _ in runs], [stop for _, stop in runs]
    for place, rank in enumerate(takers):
        wanted = held_between_blocks(target, rank)
        first, last = bisect_right(stops, wanted.sequences[0]), bisect_left(starts, wanted.sequences[1])
        for run in runs[first:last]:
            for held in by_sequences[run]:
                positions = common(held.positions, wanted.positions)
                if positions:
                    giver = nearest_holder(copies[held], place, givers, rank)
                    yield Transfer(giver, rank, _overlap(run, wanted.sequences), positions)


def nearest_holder(copies: Sequence[int], place: int, givers: Sequence[int], taker: int) -> int:
    """Return the rank that ``taker`` takes from: itself if it holds a copy, else the one at the nearest place.

    ``copies`` are the places of the holders among ``givers``, ``place`` is the taker's among its own ranks.
    """
    held = [givers[copy] for copy in copies]
    if taker in held:
        return taker
    return givers[min(copies, key=lambda copy: (abs(copy - place), copy))]


@lru_cache(maxsize=2**14)
def common(held: Stretches, wanted: Stretches) -> Stretches:
    """Return the positions in both, ascending."""
    found = (_overlap(a, b) for a in held for b in wanted)
    return tuple(sorted(stretch for stretch in found if stretch[0] < stretch[1]))


def _overlap(a: Stretch, b: Stretch) -> Stretch:
    return max(a[0], b[0]), min(a[1], b[1])


def places_in(held: Stretches, wanted: Stretches) -> Stretches:
    """Return where positions lie in what a rank holds, one stretch of its tokens for each wanted one.

    Every wanted stretch must lie in one that is held.
    """
    found = []
    for start, stop in wanted:
        at = 0
        for first, last in held:
            if first <= start and stop <= last:
                found.append((at + start - first, at + stop - first))
                break
            at += last - first
        else:
            raise ValueError(f"positions {start}..{stop} are not held: {held}")
    return tuple(found)
