"""Shuffle windows in every epoch, and hold out a share for evaluation.

The permutation of an epoch sorts the windows by random 64-bit keys: the raw output of a Philox generator (Salmon et
al., SC 2011, numpy's ``Philox``) seeded with (seed, epoch). NumPy keeps the raw output the same in all releases, but
not that of ``Generator.permutation``; two numbers therefore reproduce an order.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

EPOCHS_KEPT = 2


def permutation(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the numbers 0 … count − 1 in the order of an epoch."""
    keys = np.random.Philox(np.random.SeedSequence((seed, epoch))).random_raw(count)
    return np.argsort(keys, kind="stable")


def evenly_spaced(count: int, held_out: int) -> NDArray[np.int64]:
    """Return ``held_out`` of the numbers 0 … count − 1, evenly spaced, the same for every seed.

    Even spacing takes a share of each data file. The windows next to them are trained on, so the held-out text is new
    to the model, but its document is not.
    """
    return (2 * np.arange(held_out) + 1) * count // (2 * held_out) if held_out else np.empty(0, np.int64)


@dataclass(frozen=True)
class EpochOrder:
    """An endless sequence of ``windows``, shuffled again in each epoch.

    Sample k is a pure function of k and the seed.
    """

    windows: NDArray[np.int64]
    seed: int
    _orders: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    def at(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the windows of these sample numbers."""
        epochs, places = np.divmod(samples, len(self.windows))
        found = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            inside = epochs == epoch
            found[inside] = self.windows[self._order(epoch)[places[inside]]]
        return found

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """Return the permutation of an epoch; the last ``EPOCHS_KEPT`` are cached."""
        if epoch not in self._orders:
            for old in sorted(self._orders)[: len(self._orders) + 1 - EPOCHS_KEPT]:
                del self._orders[old]
            self._orders[epoch] = permutation(len(self.windows), self.seed, epoch)
        return self._orders[epoch]
