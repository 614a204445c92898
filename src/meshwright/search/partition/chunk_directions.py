"""Directions of chunks: stages visit the ranks in legs of P stages, each upwards or downwards."""

from typing import NamedTuple


class DirectedChunk(NamedTuple):
    """A leg takes layers from the beginning of a piece of the chain where it goes upward, else from the end.

    ``stages`` are its stages by rank. A piece belongs to one leg, or to an upward one and the downward one after it.
    """

    piece: int
    stages: tuple[int, ...]
    upward: bool


def directed_chunks(placement: tuple[int, ...]) -> tuple[DirectedChunk, ...] | None:
    """Return the legs of a placement; None where it is not made of such legs."""
    ranks, legs = max(placement) + 1, list[DirectedChunk]()
    if len(placement) % ranks:
        return None
    for first in range(0, len(placement), ranks):
        visited, stages = placement[first : first + ranks], tuple(range(first, first + ranks))
        upward = visited == tuple(range(ranks))
        if not upward and visited != tuple(reversed(range(ranks))):
            return None
        meets = bool(legs) and legs[-1].upward and not upward
        piece = legs[-1].piece + (not meets) if legs else 0
        legs.append(DirectedChunk(piece, stages if upward else stages[::-1], upward))
    return tuple(legs)
