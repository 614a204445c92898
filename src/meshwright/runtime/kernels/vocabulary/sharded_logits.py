"""Logits of which a rank holds some columns: its part of the softmax statistics, and the gradient in place.

Exponentials are computed by torch's softmax, which is faster: the sum over a rank's part, relative to the part's own
maximum, is one over the largest value of its softmax. That sum's share of the sum over all ranks turns the part's
softmax into the whole's. Rows are processed a few at a time, so that no wide copy of all logits ever exists.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from meshwright.model.operators.operator_types import Loss
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.kernels.vocabulary.sharded_softmax import Softmax

AT_ONCE = 2**21
"""Logits that are widened at a time."""


@dataclass(frozen=True)
class ShardedLogits:
    """The arithmetic of logits x (sequence, batch, columns of this rank); padding columns are ignored."""

    op: Loss
    setting: Setting

    def part(self, x: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
        """Return this rank's part of the softmax statistics: (3, sequence, batch) as in ``Softmax``."""
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
        """Replace the logits by the loss's gradient: (softmax − one-hot), weighed, times their slope."""
        self._in_place(x, softmax, softmax.scale * softmax.weight, softmax.weight)

    def soften(self, x: torch.Tensor, softmax: Softmax) -> None:
        """Replace the logits by this part's own softmax times their slope, which needs no other part."""
        one = torch.ones_like(softmax.part[0])
        self._in_place(x, softmax, one, torch.zeros_like(one))

    def complete(self, x: torch.Tensor, softmax: Softmax) -> None:
        """Turn the result of ``soften`` into that of ``differentiate``."""
        column, here = self._targets(softmax.batch.labels, x.shape[-1])
        factor, once = softmax.scale * softmax.weight, torch.where(here, -self._once(softmax), 0)
        for rows in self._slices(x):
            gradient = x[rows].to(factor) * factor[rows, :, None]
            x[rows] = gradient.scatter_add_(-1, column[rows, :, None], once[rows, :, None])

    def target_rows(self, table: torch.Tensor, softmax: Softmax) -> torch.Tensor:
        """Return one-hot, weighed, times the slope of the logits and the table: (sequence, batch, hidden)."""
        column, here = self._targets(softmax.batch.labels, len(table))
        return table[column] * torch.where(here, self._once(softmax), 0)[..., None]

    def _once(self, softmax: Softmax) -> torch.Tensor:
        """Return the gradient's one-hot term for the target's logit."""
        return self._sloped(softmax.weight.clone(), softmax.part[2])

    def _in_place(
        self, x: torch.Tensor, softmax: Softmax, factor: torch.Tensor, weight: torch.Tensor
    ) -> None:
        """Replace the logits by softmax'·factor − one-hot·weight, times the slope of divisor and soft cap."""
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
        """Return the logits divided and soft-capped as the model requires."""
        numerics = self.setting.numerics
        if numerics.logit_divisor != 1:
            logits = logits / numerics.logit_divisor
        cap = numerics.logit_soft_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _sloped(self, gradient: torch.Tensor, bent: torch.Tensor) -> torch.Tensor:
        """Turn the gradient of divided and capped logits into that of the raw ones, in place."""
        numerics = self.setting.numerics
        if numerics.logit_soft_cap is not None:
            gradient *= 1 - (bent / numerics.logit_soft_cap) ** 2
        return gradient if numerics.logit_divisor == 1 else gradient.div_(numerics.logit_divisor)

    def _targets(self, labels: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the labels' columns on this rank (0 if elsewhere), and whether they are here."""
        column = labels - self.setting.vocabulary_part * width
        here = (column >= 0) & (column < width)
        return column.masked_fill(~here, 0), here

    def _valid(self, x: torch.Tensor) -> int:
        """Return the number of this rank's columns that are not padding."""
        return max(0, min(x.shape[-1], self.op.vocab - self.setting.vocabulary_part * x.shape[-1]))

    def _slices(self, x: torch.Tensor) -> Iterator[slice]:
        step = max(1, AT_ONCE // max(1, x[0].numel()))
        return (slice(at, at + step) for at in range(0, len(x), step))
