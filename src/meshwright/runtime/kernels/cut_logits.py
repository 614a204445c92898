"""Logits of which a rank has a part of the columns: what it adds to the softmax of all, and their gradient in place.

Exponentials are taken by softmax, which knows a faster way to them: the sum over a rank's part, relative to the part's
own maximum, is one over the largest value of its softmax. That sum's share in the sum over all ranks turns the part's
softmax into the whole's. The work is done a few rows at a time, so that no wide copy of all logits ever exists.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from meshwright.model.operators import Loss
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.kernels.softmax import Softmax
from meshwright.runtime.visit import MicroBatch

AT_ONCE = 2**21
"""Logits that are widened at a time."""


@dataclass(frozen=True)
class CutLogits:
    """The arithmetic of logits x (sequence, batch, columns of this rank); columns of padding count as nothing."""

    op: Loss
    setting: Setting

    def part(self, x: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
        """What this rank's part says of the softmax: (3, sequence, batch) as ``Softmax`` has it."""
        valid, dtype = self._valid(x), self.setting.precision.statistic
        part = x.new_zeros((3, *x.shape[:-1]), dtype=dtype)
        if not valid:
            part[0], part[1] = float("-inf"), float("inf")
        for rows in self._slices(x) if valid else ():
            wide = self._bent(x[rows, :, :valid].to(dtype))
            part[0, rows] = wide.amax(-1)
            part[1, rows] = wide.softmax(-1).amax(-1)
        column, here = self._targets(batch.labels, x.shape[-1])
        part[2] = torch.where(here, self._bent(x.gather(-1, column[..., None])[..., 0].to(dtype)), 0)
        return part

    def differentiate(self, x: torch.Tensor, softmax: Softmax) -> None:
        """The gradient of the loss in place of the logits: (softmax − one-hot), weighed, times their slope."""
        self._in_place(x, softmax, softmax.scale * softmax.weight, softmax.weight)

    def soften(self, x: torch.Tensor, softmax: Softmax) -> None:
        """Only this part's own softmax, times the slope of the logits, in their place: no other part is needed."""
        one = torch.ones_like(softmax.part[0])
        self._in_place(x, softmax, one, torch.zeros_like(one))

    def complete(self, x: torch.Tensor, softmax: Softmax) -> None:
        """From what ``soften`` leaves to what ``differentiate`` makes."""
        column, here = self._targets(softmax.batch.labels, x.shape[-1])
        factor, once = softmax.scale * softmax.weight, torch.where(here, -self._once(softmax), 0)
        for rows in self._slices(x):
            gradient = x[rows].to(factor) * factor[rows, :, None]
            x[rows] = gradient.scatter_add_(-1, column[rows, :, None], once[rows, :, None])

    def target_rows(self, table: torch.Tensor, softmax: Softmax) -> torch.Tensor:
        """One-hot, weighed, times the slope of the logits and the table: (sequence, batch, hidden)."""
        column, here = self._targets(softmax.batch.labels, len(table))
        return table[column] * torch.where(here, self._once(softmax), 0)[..., None]

    def _once(self, softmax: Softmax) -> torch.Tensor:
        """What the target's logit has of the gradient, beside its part of the softmax."""
        return self._sloped(softmax.weight.clone(), softmax.part[2])

    def _in_place(
        self, x: torch.Tensor, softmax: Softmax, factor: torch.Tensor, weight: torch.Tensor
    ) -> None:
        """softmax'·factor − one-hot·weight, times the slope of what bends the logits."""
        valid = self._valid(x)
        column, here = self._targets(softmax.batch.labels, x.shape[-1])
        once = torch.where(here, -weight, 0)
        for rows in self._slices(x) if valid else ():
            bent = self._bent(x[rows, :, :valid].to(factor))
            gradient = bent.softmax(-1).mul_(factor[rows, :, None])
            gradient.scatter_add_(-1, column[rows, :, None], once[rows, :, None])
            x[rows, :, :valid] = self._sloped(gradient, bent)
        x[..., valid:] = 0

    def _bent(self, logits: torch.Tensor) -> torch.Tensor:
        """Divided, then capped, as the model says."""
        numerics = self.setting.numerics
        if numerics.logit_divisor != 1:
            logits = logits / numerics.logit_divisor
        cap = numerics.logit_soft_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _sloped(self, gradient: torch.Tensor, bent: torch.Tensor) -> torch.Tensor:
        """The gradient of the logits from that of the bent ones, in its place."""
        numerics = self.setting.numerics
        if numerics.logit_soft_cap is not None:
            gradient *= 1 - (bent / numerics.logit_soft_cap) ** 2
        return gradient if numerics.logit_divisor == 1 else gradient.div_(numerics.logit_divisor)

    def _targets(self, labels: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The labels' columns on this rank (0 where they are elsewhere), and whether they are here."""
        column = labels - self.setting.vocabulary_part * width
        here = (column >= 0) & (column < width)
        return column.masked_fill(~here, 0), here

    def _valid(self, x: torch.Tensor) -> int:
        """Columns of this rank that are no padding."""
        return max(0, min(x.shape[-1], self.op.vocab - self.setting.vocabulary_part * x.shape[-1]))

    def _slices(self, x: torch.Tensor) -> Iterator[slice]:
        step = max(1, AT_ONCE // max(1, x[0].numel()))
        return (slice(at, at + step) for at in range(0, len(x), step))
