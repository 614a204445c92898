"""Which window a run takes when: a new permutation in every epoch, and a share that is held out.

The permutation of an epoch sorts the windows by random 64-bit keys, the raw output of a Philox generator (Salmon et
al., SC 2011, numpy's ``Philox``) that is seeded with (seed, epoch). NumPy promises the raw output to stay what it is
in all releases, which it does not for ``Generator.permutation``; so an order can be had again from two numbers.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

EPOCHS_KEPT = 2


def permutation(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The numbers 0 … count − 1 in the order of an epoch."""
    keys = np.random.Philox(np.random.SeedSequence((seed, epoch))).random_raw(count)
    return np.argsort(keys, kind="stable")


def spread(count: int, held_out: int) -> NDArray[np.int64]:
    """``held_out`` of the numbers 0 … count − 1, evenly spread, the same for every seed.

    Evenly: each file of the data has its share. The windows next to them are trained on, so what is held out is new
    to the model as text, not as a book.
    """
    return (2 * np.arange(held_out) + 1) * count // (2 * held_out) if held_out else np.empty(0, np.int64)


@dataclass(frozen=True)
class EpochOrder:
    """An endless sequence of ``windows``: epoch by epoch, shuffled anew in each. Sample k is a pure function."""

    windows: NDArray[np.int64]
    seed: int
    _orders: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    def at(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The windows that are the samples of these numbers."""
        epochs, places = np.divmod(samples, len(self.windows))
        found = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            found[inside] = self.windows[self._order(epoch)[places[inside]]]
        return found

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """The permutation of an epoch; the last ones are kept, for they take time to make."""
        if epoch not in self._orders:
            for old in sorted(self._orders)[: len(self._orders) + 1 - EPOCHS_KEPT]:
                del self._orders[old]
            self._orders[epoch] = permutation(len(self.windows), self.seed, epoch)
        return self._orders[epoch]
