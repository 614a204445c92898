"""Copy each row once for every destination that its slots name, and sum what returns.

A slot of a token is one of its chosen experts. Between hops slots name ranks, at the end a rank's own experts. Sums run
slot by slot, so that they are the same to the bit whatever the device's parallelism.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

NOWHERE = -1
"""The destination of a slot whose expert cannot be reached from here."""


@dataclass(frozen=True)
class RowCopies:
    """The slots, numbered row by row, for which a copy was made, ordered by destination; ``shape`` is (rows, slots)."""

    slots: torch.Tensor
    shape: torch.Size

    @cached_property
    def rows(self) -> torch.Tensor:
        """The row of each copy."""
        return self.slots // self.shape[1]

    @cached_property
    def _copy_of(self) -> torch.Tensor:
        """The copy of each slot; one past the last copy if it has none."""
        found = self.slots.new_full((self.shape.numel(),), len(self.slots))
        found[self.slots] = torch.arange(len(self.slots), device=found.device)
        return found.view(self.shape)

    def copies(self, x: torch.Tensor) -> torch.Tensor:
        """Return the copies of rows: (rows, …) → (copies, …)."""
        return x[self.rows]

    def sums(self, copies: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the rows' sums of copies: (copies, width) → (rows, width), summed in ``dtype``."""
        padded = torch.cat([copies, copies.new_zeros((1, copies.shape[1]))])
        total = copies.new_zeros((self.shape[0], copies.shape[1]), dtype=dtype)
        for slot in self._copy_of.unbind(1):
            total += padded[slot]
        return total.to(copies.dtype)

    def of_slots(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return each copy's number from one number per row and slot."""
        return numbers.flatten()[self.slots]

    def to_slots(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return (rows, slots) from one number per copy, 0 for slots without a copy."""
        found = numbers.new_zeros(self.shape.numel())
        found[self.slots] = numbers
        return found.view(self.shape)


def row_copies(parts: torch.Tensor) -> RowCopies:
    """Return the copies for (rows, slots) destinations; copies of one destination stay in the order of rows."""
    same = (parts[:, :, None] == parts[:, None, :]).tril(-1).any(-1)
    (kept,) = ((parts != NOWHERE) & ~same).flatten().nonzero(as_tuple=True)
    return RowCopies(kept[parts.flatten()[kept].argsort(stable=True)], parts.shape)
