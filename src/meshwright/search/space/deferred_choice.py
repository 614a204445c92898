"""The choice that a search defers until lower bounds have left a plan open.

Bounds of a plan hold for all values that it may still have: those of time are the quickest value's, those of memory the
leanest one's. So a space does not grow by this choice, only what is still open does. Its values are counted as all
other plans are.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class DeferredChoice:
    """Code j of ``column`` is open to base plan i where ``legal[j, i]``.

    Where ``slower[j, i]`` another code of the same plan is quicker: this one only matters where that does not fit.
    """

    column: str
    legal: Bools
    slower: Bools

    @classmethod
    def open(cls, column: str, legal: Bools) -> "DeferredChoice":
        """Nothing is known of what is quicker."""
        return cls(column, legal, np.zeros_like(legal))

    @classmethod
    def settled(cls, column: str, codes: Ints, values: int) -> "DeferredChoice":
        """Every base plan has one code, of so many."""
        return cls.open(column, codes[None, :] == np.arange(values)[:, None])

    @cached_property
    def counts(self) -> Ints:
        """Count the values that each base plan may have: (n,)."""
        return np.asarray(self.legal.sum(0))

    def take(self, rows: Ints | Bools) -> "DeferredChoice":
        """Those of some base plans."""
        return replace(self, legal=self.legal[:, rows], slower=self.slower[:, rows])

    def among(self, codes: Bools) -> "DeferredChoice":
        """With no other codes than those of a mask: (values,) or (values, n)."""
        legal = self.legal & codes.reshape(len(self.legal), -1)
        return replace(self, legal=legal, slower=self.slower & legal)

    def of(self, rows: Ints, unchosen: Bools) -> tuple[Ints, Ints]:
        """Every code that base plans may have where it is not chosen yet: places in ``rows``, ascending, and codes.

        Where it is, there is one that says nothing.
        """
        open_ = self.legal[:, rows].T & unchosen[:, None]
        open_[~unchosen, 0] = True
        places, codes = np.nonzero(open_)
        return places, codes
