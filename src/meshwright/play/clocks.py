"""Hold the times of all ranks while lists are played: floats for one plan, or arrays for many at once."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Numbers(NamedTuple):
    """The arithmetic of times."""

    zero: Any
    larger: Callable[[Any, Any], Any]
    smaller: Callable[[Any, Any], Any]


FLOATS = Numbers(0.0, max, min)


class Clocks:
    """The state of all ranks, and the times of what has been played.

    ``free`` is when the compute of each rank is free, with a zero behind the ranks, for steps of no rank. ``lasted`` is
    the duration of each rank's last pass. ``starts`` and ``ends`` are the times of the steps of one round of the lists,
    by their place in the order.
    """

    def __init__(self, ranks: int, numbers: Numbers) -> None:
        self.ranks, self.numbers = ranks, numbers
        self.free: list[Any] = [numbers.zero] * (ranks + 1)
        self.lasted: list[Any] = [numbers.zero] * ranks
        self.starts: list[Any] = []
        self.ends: list[Any] = []
