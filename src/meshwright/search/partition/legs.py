"""How stages go over the ranks: in legs of P stages, each of which visits all ranks upwards or downwards."""

from typing import NamedTuple


class Leg(NamedTuple):
    """A leg takes layers from the beginning of a piece of the chain where it goes upward, else from the end.

    ``stages`` are its stages by rank. A piece belongs to one leg, or to an upward one and the downward one after it.
    """

    piece: int
    stages: tuple[int, ...]
    upward: bool


def legs_of(placement: tuple[int, ...]) -> tuple[Leg, ...] | None:
    """The legs of a placement; None where it is made otherwise."""
    ranks, legs = max(placement) + 1, list[Leg]()
    if len(placement) % ranks:
        return None
    for first in range(0, len(placement), ranks):
        visited, stages = placement[first : first + ranks], tuple(range(first, first + ranks))
        upward = visited == tuple(range(ranks))
        if not upward and visited != tuple(reversed(range(ranks))):
            return None
        meets = bool(legs) and legs[-1].upward and not upward
        piece = legs[-1].piece + (not meets) if legs else 0
        legs.append(Leg(piece, stages if upward else stages[::-1], upward))
    return tuple(legs)
