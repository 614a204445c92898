"""Cross-entropy over a vocabulary that is cut over tp, with the gradient made in place of the logits.

Per token: the maximum over all ranks, then the sums of exponentials and the target's logit (Megatron-LM, arXiv
1909.08053, section 3). The forward pass turns the logits into their gradient, softmax − one-hot, at once: nothing
else is kept, and the work is done a few rows at a time, so that no wide copy of all logits ever exists.

Exponentials are taken by softmax, which knows a faster way to them: the sum over a rank's part, relative to the part's
own maximum, is one over the largest value of its softmax. That sum's share in the sum over all ranks turns the part's
softmax into the whole's.

The value is Σ over counted labels of −log p, divided by the number of labels of the whole batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from meshwright.model.operators import Loss
from meshwright.program.bodies import LOSS_STATISTICS
from meshwright.program.items import Collective
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.visit import MicroBatch, Visit

IGNORED = -100
AT_ONCE = 2**21
"""Logits that are widened at a time."""


@dataclass(frozen=True)
class LossKernel:
    """Logits (sequence, batch, vocabulary/tp) → the loss of this micro-batch, a number on every tp rank."""

    op: Loss
    setting: Setting

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """The maximum first, then the sums that need it."""
        (maximum, width), (sums, wide) = LOSS_STATISTICS
        if item.what.endswith(maximum):
            visit.kept["maximum"] = self._maximum(x)
            yield self.setting.communicator.start(item, visit.kept["maximum"], width, largest=True)
        else:
            assert item.what.endswith(sums), item
            visit.kept["sums"] = self._sums(x, visit)
            yield self.setting.communicator.start(item, visit.kept["sums"], wide // 2)
        return x

    def forward(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """The loss; ``x`` becomes its own gradient."""
        if self.setting.tp == 1:
            visit.kept["maximum"] = self._maximum(x)
            visit.kept["sums"] = self._sums(x, visit)
        maximum, (total, target) = visit.kept.pop("maximum"), visit.kept.pop("sums")
        counted, share = visit.batch.labels != IGNORED, visit.kept.pop("share")
        losses = (total.log() + maximum - target).masked_fill_(~counted, 0)
        weight = counted.to(total) / visit.batch.divisor
        self._differentiate(x, share / total * weight, weight, visit.batch)
        visit.kept["gradient"] = x
        return losses.sum() / visit.batch.divisor

    def again(self, visit: Visit) -> torch.Tensor:
        """The loss is not recomputed."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: Visit) -> None:
        """It keeps no input."""

    def input_gradient(self, g: None, visit: Visit) -> torch.Tensor:
        """The gradient of the logits, which the forward pass has made."""
        return visit.kept.pop("gradient")

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def _maximum(self, x: torch.Tensor) -> torch.Tensor:
        valid = self._valid(x)
        if not valid:
            return x.new_full(x.shape[:-1], float("-inf"), dtype=self.setting.precision.statistic)
        return self._bent(x[..., :valid].amax(-1).to(self.setting.precision.statistic))

    def _sums(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Sums of exponentials and targets' logits of this rank's part: (2, sequence, batch)."""
        maximum, valid = visit.kept["maximum"], self._valid(x)
        sums = maximum.new_zeros((2, *maximum.shape))
        for rows in self._slices(x) if valid else ():
            wide = self._bent(x[rows, :, :valid].to(sums))
            torch.exp(wide.amax(-1) - maximum[rows], out=sums[0, rows])
            sums[0, rows] /= wide.softmax(-1).amax(-1)
        visit.kept["share"] = sums[0].clone()
        column, here = self._targets(visit.batch.labels, x.shape[-1])
        found = self._bent(x.gather(-1, column[..., None])[..., 0].to(sums))
        sums[1] = torch.where(here, found, 0)
        return sums

    def _differentiate(
        self, x: torch.Tensor, share: torch.Tensor, weight: torch.Tensor, batch: MicroBatch
    ) -> None:
        """softmax·share − one-hot·weight in place, times the slope of what bends the logits."""
        valid = self._valid(x)
        column, here = self._targets(batch.labels, x.shape[-1])
        once = torch.where(here, -weight, 0)
        for rows in self._slices(x) if valid else ():
            bent = self._bent(x[rows, :, :valid].to(share))
            gradient = bent.softmax(-1).mul_(share[rows, :, None])
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
        first = self.setting.tp_rank * width
        column = labels - first
        here = (column >= 0) & (column < width)
        return column.masked_fill(~here, 0), here

    def _valid(self, x: torch.Tensor) -> int:
        """Columns of this rank that are no padding."""
        return max(0, min(x.shape[-1], self.op.vocab - self.setting.tp_rank * x.shape[-1]))

    def _slices(self, x: torch.Tensor) -> Iterator[slice]:
        step = max(1, AT_ONCE // max(1, x[0].numel()))
        return (slice(at, at + step) for at in range(0, len(x), step))
