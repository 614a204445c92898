"""The batch of a step: a pure function of (data, seed, step), independent of the number of ranks and their layout.

Sequence i of step s is sample s·G + i of the order, so steps continue past the end of an epoch. Resuming needs only a
step number, and each rank reads only its own rows of a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.data.epoch_order import EpochOrder
from meshwright.runtime.data.sequence_windows import Batch, Windows


class Batches(Protocol):
    """Batches of ``global_batch`` sequences each, numbered from 0."""

    @property
    def global_batch(self) -> int:
        """Sequences of a batch."""
        ...

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """Return the sequences with these indices, 0 … global_batch − 1, of a step's batch."""
        ...


def whole_batch(batches: Batches, step: int) -> Batch:
    """Return all sequences of a step."""
    return batches.rows(step, range(batches.global_batch))


def samples(batches: Batches, step: int, indices: Sequence[int]) -> NDArray[np.int64]:
    """Return the sample numbers of these sequences, counted from the first sequence of step 0."""
    chosen = np.array(indices, np.int64)
    assert step >= 0, f"step {step}"
    assert ((chosen >= 0) & (chosen < batches.global_batch)).all(), (
        f"rows {indices} of {batches.global_batch}"
    )
    return step * batches.global_batch + chosen


@dataclass(frozen=True)
class TrainingBatches:
    """Endless batches, shuffled again in every epoch."""

    windows: Windows
    order: EpochOrder
    global_batch: int

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """Return the sequences with these indices of a step's batch."""
        return self.windows.rows(self.order.at(samples(self, step, indices)))


@dataclass(frozen=True)
class HeldOutBatches:
    """``count`` batches that show each held-out window once; rows without labels fill up the last one."""

    windows: Windows
    numbers: NDArray[np.int64]
    global_batch: int

    @property
    def count(self) -> int:
        """Batches of one evaluation."""
        return -(-len(self.numbers) // self.global_batch)

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """Return the sequences with these indices of batch ``step``, 0 … count − 1."""
        numbers = samples(self, step, indices)
        known = numbers < len(self.numbers)
        chosen = np.full_like(numbers, -1)
        chosen[known] = self.numbers[numbers[known]]
        return self.windows.rows(chosen)
