"""One copy of each row for every part that one of its slots names, and sums of what becomes of the copies.

A slot of a token is one of the experts that it chose. On the way slots name ranks, at the end a rank's own experts.
Sums go slot by slot, so that they are the same to the bit whatever a device does at once.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

NOWHERE = -1
"""The part of a slot whose expert is not ahead."""


@dataclass(frozen=True)
class Spread:
    """``slots`` are those for which a copy was made, numbered row by row, in the order of parts; (rows, slots)."""

    slots: torch.Tensor
    shape: torch.Size

    @cached_property
    def rows(self) -> torch.Tensor:
        """Of which row each copy is."""
        return self.slots // self.shape[1]

    @cached_property
    def _copy_of(self) -> torch.Tensor:
        """Which copy each slot has, one behind the last where it has none."""
        found = self.slots.new_full((self.shape.numel(),), len(self.slots))
        found[self.slots] = torch.arange(len(self.slots), device=found.device)
        return found.view(self.shape)

    def copies(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, …) → (copies, …)."""
        return x[self.rows]

    def sums(self, copies: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """(copies, width) → (rows, width), summed in ``dtype``."""
        padded = torch.cat([copies, copies.new_zeros((1, copies.shape[1]))])
        total = copies.new_zeros((self.shape[0], copies.shape[1]), dtype=dtype)
        for slot in self._copy_of.unbind(1):
            total += padded[slot]
        return total.to(copies.dtype)

    def of_slots(self, numbers: torch.Tensor) -> torch.Tensor:
        """One number of each row and slot → that of each copy."""
        return numbers.flatten()[self.slots]

    def to_slots(self, numbers: torch.Tensor) -> torch.Tensor:
        """One number of each copy → (rows, slots), 0 for slots without one."""
        found = numbers.new_zeros(self.shape.numel())
        found[self.slots] = numbers
        return found.view(self.shape)


def spread(parts: torch.Tensor) -> Spread:
    """Of (rows, slots) parts; a part's copies stay in the order of rows."""
    same = (parts[:, :, None] == parts[:, None, :]).tril(-1).any(-1)
    (kept,) = ((parts != NOWHERE) & ~same).flatten().nonzero(as_tuple=True)
    return Spread(kept[parts.flatten()[kept].argsort(stable=True)], parts.shape)
