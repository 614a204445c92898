"""Expert routing: a workload's distribution of tokens over experts.

===============  ====================================================================================================
said             means
===============  ====================================================================================================
``balanced``     every expert is chosen as often as any other: forced balance, dropped tokens, a loss that holds it
a number s       popularity falls as i^-s from the first to the last expert (Zipf); who is popular lies anywhere
counts           measured: how often each expert was chosen, a row for all routed layers or one for each of them
pairs            measured, too: how often a token chose both of two experts, a table for each routed layer
===============  ====================================================================================================
"""

from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Counts = tuple[tuple[float, ...], ...]

MAX_SKEW = 8.0


@dataclass(frozen=True, slots=True)
class Pairs:
    """Tables of ``experts`` rows, one table for each routed layer, as 64-bit floats: how often a token chose both.

    On the diagonal is how often it chose the expert at all.
    """

    experts: int
    values: bytes

    @property
    def layers(self) -> int:
        """Routed layers."""
        return len(self.values) // (8 * self.experts**2)

    @property
    def counts(self) -> Counts:
        """The diagonals."""
        return _diagonals(self)


RoutingValue = Literal["balanced"] | float | Counts | Pairs


@lru_cache(maxsize=4)
def _diagonals(pairs: Pairs) -> Counts:
    values, step = array("d", pairs.values), pairs.experts**2
    starts = range(0, len(values), step)
    return tuple(tuple(values[start : start + step : pairs.experts + 1]) for start in starts)


@dataclass(frozen=True, slots=True)
class Routing:
    """A workload's routing."""

    value: RoutingValue

    def __str__(self) -> str:
        if isinstance(self.value, Pairs):
            return f"{self.value.layers} tables of pairs"
        return f"{len(self.value)} rows of counts" if isinstance(self.value, tuple) else str(self.value)

    @property
    def counts(self) -> Counts | None:
        """Return the counts of each expert's tokens; None where they were not counted."""
        if isinstance(self.value, Pairs):
            return self.value.counts
        return self.value if isinstance(self.value, tuple) else None
