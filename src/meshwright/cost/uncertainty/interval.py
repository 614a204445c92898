"""An 80 % interval as two factors on a predicted value."""

from dataclasses import dataclass
from math import exp, hypot, log

QUANTILE = 1.2816
"""Standard deviations from the middle of a normal distribution to its 90 % quantile."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Factors on a predicted value: the ends of its 80 % interval."""

    low: float
    high: float

    @classmethod
    def around(cls, sigma: float, quantile: float = QUANTILE) -> "Interval":
        """Return the interval of a log-normal error with the standard deviation ``sigma`` of its logarithm."""
        return cls(exp(-quantile * sigma), exp(quantile * sigma))

    def widened(self, factor: float) -> "Interval":
        """Return an interval that is wider by a factor in the logarithm."""
        return Interval(self.low**factor, self.high**factor)

    def combined(self, other: "Interval") -> "Interval":
        """Return the interval of the product of two independent errors, both of which have 1 inside."""
        low, high = hypot(log(self.low), log(other.low)), hypot(log(self.high), log(other.high))
        return Interval(exp(-low), exp(high))

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return (log(self.high) - log(self.low)) / (2 * QUANTILE)
