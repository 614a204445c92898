"""How unevenly tokens choose experts, as a workload says it.

===============  ====================================================================================================
said             means
===============  ====================================================================================================
``balanced``     every expert is chosen as often as any other: forced balance, dropped tokens, a loss that holds it
a number s       popularity falls as i^-s from the first to the last expert (Zipf); who is popular lies anywhere
counts           measured: how often each expert was chosen, a row for all routed layers or one for each of them
===============  ====================================================================================================
"""

from dataclasses import dataclass
from typing import Literal

Counts = tuple[tuple[float, ...], ...]
Said = Literal["balanced"] | float | Counts

MAX_SKEW = 8.0


@dataclass(frozen=True, slots=True)
class Routing:
    """What a workload says of it."""

    said: Said

    def __str__(self) -> str:
        return f"{len(self.said)} rows of counts" if isinstance(self.said, tuple) else str(self.said)
