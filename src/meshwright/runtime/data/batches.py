"""The batch of a step: a pure function of (data, seed, step), whatever the number of ranks and their layout.

Sequence i of step s is sample s·G + i of the order, so steps run on over the end of an epoch. Resuming is only a step
number, and ranks that share a step ask for their own rows of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.data.order import EpochOrder
from meshwright.runtime.data.windows import Batch, Windows


class Batches(Protocol):
    """Batches of ``global_batch`` sequences each, numbered from 0."""

    @property
    def global_batch(self) -> int:
        """Sequences of a batch."""
        ...

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """The sequences of these indices, 0 … global_batch − 1, of the batch of a step."""
        ...


def whole_batch(batches: Batches, step: int) -> Batch:
    """All sequences of a step."""
    return batches.rows(step, range(batches.global_batch))


def samples(batches: Batches, step: int, indices: Sequence[int]) -> NDArray[np.int64]:
    """The numbers of these sequences, counted from the first one of step 0."""
    chosen = np.array(indices, np.int64)
    assert step >= 0, f"step {step}"
    assert ((chosen >= 0) & (chosen < batches.global_batch)).all(), (
        f"rows {indices} of {batches.global_batch}"
    )
    return step * batches.global_batch + chosen


@dataclass(frozen=True)
class TrainingBatches:
    """Batches without end, every epoch in a new order."""

    windows: Windows
    order: EpochOrder
    global_batch: int

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """The sequences of these indices of the batch of a step."""
        return self.windows.rows(self.order.at(samples(self, step, indices)))


@dataclass(frozen=True)
class HeldOutBatches:
    """``count`` batches that show each held-out window once; rows that predict nothing fill up the last one."""

    windows: Windows
    numbers: NDArray[np.int64]
    global_batch: int

    @property
    def count(self) -> int:
        """Batches of one evaluation."""
        return -(-len(self.numbers) // self.global_batch)

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """The sequences of these indices of the batch ``step``, 0 … count − 1."""
        wanted = samples(self, step, indices)
        known = wanted < len(self.numbers)
        chosen = np.full_like(wanted, -1)
        chosen[known] = self.numbers[wanted[known]]
        return self.windows.rows(chosen)
