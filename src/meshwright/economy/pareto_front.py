"""Pareto sets: points that no other point matches in everything and beats in something.

A point has a number for each aim, the less the better, or None where it is unknown. What is unknown of both points is
left out; what is known of one alone makes the two incomparable. So points fall into classes by what is known of them,
and inside a class this is the usual order of Pareto.
"""

from collections.abc import Sequence

Point = Sequence[float | None]


def dominates(a: Point, b: Point) -> bool:
    """Return true if ``a`` is nowhere worse than ``b`` and better somewhere."""
    better = False
    for left, right in zip(a, b, strict=True):
        if left is None and right is None:
            continue
        if left is None or right is None or left > right:
            return False
        better = better or left < right
    return better


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Return the indices of points that no other dominates, in their order; equal points stay together."""
    return [i for i, point in enumerate(points) if not any(dominates(other, point) for other in points)]
