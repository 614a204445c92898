"""Times as whole ticks, so that 0.1 ten times is 1 and equal times are equal."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import lcm
from typing import NamedTuple

from meshwright.schedules.stage_times import StageTimes

MOST_TICKS = 2**36
"""Of one pass, where ticks are counted in machine words."""


class Ticks(NamedTuple):
    """Times of stages in ticks, and how many of them make one unit of the reader's."""

    times: StageTimes
    in_unit: int

    def units(self) -> StageTimes:
        """Return the times in the reader's unit."""
        forward, input_, weight = (
            tuple(ticks / self.in_unit for ticks in of_stages) for of_stages in three(self.times)
        )
        return replace(
            self.times,
            forward=forward,
            input=input_,
            weight=weight,
            message=self.times.message / self.in_unit,
        )


def three(times: StageTimes) -> tuple[tuple[float, ...], ...]:
    """F, I and W of all stages."""
    return times.forward, times.input, times.weight


def exact(seconds: float) -> Fraction:
    """Return the decimal that a user wrote, as a fraction."""
    return Fraction(repr(seconds))


def ticks_of(seconds: Sequence[Sequence[Fraction]], message: Fraction, kept: float = 0.5) -> Ticks:
    """F, I and W of all stages and a message, in the largest ticks in which all of them are whole.

    As ``whole_times`` does it cuts off what makes a pass longer than ``MOST_TICKS``.
    """
    in_unit = ticks_in_unit([message, *chain.from_iterable(seconds)])
    forward, input_, weight = (tuple(int(time * in_unit) for time in of_stages) for of_stages in seconds)
    return Ticks(StageTimes(forward, input_, weight, int(message * in_unit), kept), in_unit)


def ticks_in_unit(times: Sequence[Fraction], most: int = MOST_TICKS) -> int:
    """Return the ticks per unit that make all times whole, or give the longest ``most`` ticks."""
    in_unit = lcm(*(time.denominator for time in times))
    longest = int(max(times) * in_unit)
    return in_unit if longest <= most else max(1, in_unit * most // longest)


def whole_times(times: StageTimes) -> Ticks:
    """Any times in ticks. No pass takes more than ``MOST_TICKS``, if a unit has more than one; what is cut off makes
    times shorter, by 1 part in 10¹⁰ of the longest one at most.
    """
    seconds = [[*map(exact, of_stages)] for of_stages in three(times)]
    return ticks_of(seconds, exact(times.message), times.kept)
