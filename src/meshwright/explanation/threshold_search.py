"""Find the factor at which an answer changes: climb a ladder of factors, then bisect its first rung.

Between 1 and the first rung that has another answer there is a change of it. Bisection ends when the two sides are
within ``PRECISION`` of the change itself: a change that is 1 % smaller has the old answer. An answer that turns and
turns back between two rungs is not seen.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

LADDER = (1.05, 1.1, 1.25, 1.5, 2.0, 4.0)
PRECISION = 0.005
MOST_HALVINGS = 40


class Bracket(NamedTuple):
    """The factor on which the answer is still the old one, and the next one, on which it is not."""

    old: float
    new: float


def first_change(same: Callable[[float], bool], rungs: Sequence[float], *, bisect: bool) -> Bracket | None:
    """Return the bracket of the first change along ``rungs``, which lead away from 1; None without a change.

    Without ``bisect`` it is the rung and the one before it.
    """
    old = 1.0
    for rung in rungs:
        if not same(rung):
            return _narrowed(same, old, rung) if bisect else Bracket(old, rung)
        old = rung
    return None


def rungs(up: bool, most: float) -> tuple[float, ...]:
    """Return the ladder of factors upwards, as far as ``most`` allows, or downwards."""
    if not up:
        return tuple(1 / rung for rung in LADDER)
    return tuple(rung for rung in LADDER if rung <= most)


def _narrowed(same: Callable[[float], bool], old: float, new: float) -> Bracket:
    for _ in range(MOST_HALVINGS):
        if abs(new - old) <= PRECISION * abs(new - 1):
            break
        middle = (old + new) / 2
        if same(middle):
            old = middle
        else:
            new = middle
    return Bracket(old, new)
