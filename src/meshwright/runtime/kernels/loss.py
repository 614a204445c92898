"""Cross-entropy over a vocabulary that is cut over tp, with the gradient made in place of the logits.

Per token: the maximum over all ranks, then the sums of exponentials and the target's logit (Megatron-LM, arXiv
1909.08053, section 3). The forward pass turns the logits into their gradient, softmax − one-hot, at once: nothing
else is kept, and the work is done a few rows at a time, so that no wide copy of all logits ever exists.

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
        counted = visit.batch.labels != IGNORED
        losses = (total.log() + maximum - target).masked_fill_(~counted, 0)
        for rows in self._slices(x):
            self._differentiate(x, rows, maximum[rows, :, None], total[rows, :, None], visit.batch)
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
        maximum = visit.kept["maximum"]
        sums = maximum.new_zeros((2, *maximum.shape))
        for rows in self._slices(x):
            wide = self._bent(x[rows][..., : self._valid(x)].to(sums))
            sums[0, rows] = torch.exp(wide - maximum[rows][..., None]).sum(-1)
        column, here = self._targets(visit.batch.labels, x.shape[-1])
        found = self._bent(x.gather(-1, column[..., None])[..., 0].to(sums))
        sums[1] = torch.where(here, found, 0)
        return sums

    def _differentiate(
        self, x: torch.Tensor, rows: slice, maximum: torch.Tensor, total: torch.Tensor, batch: MicroBatch
    ) -> None:
        """(softmax − one-hot) / divisor in place, times the slope of what bends the logits; 0 where nothing counts."""
        valid, labels = self._valid(x), batch.labels[rows]
        bent = self._bent(x[rows][..., :valid].to(maximum))
        gradient = torch.exp(bent - maximum) / total
        column, here = self._targets(labels, x.shape[-1])
        if valid:
            gradient.scatter_add_(-1, column[..., None], -here[..., None].to(gradient))
        weight = (labels != IGNORED).to(gradient) / batch.divisor
        x[rows, :, :valid] = (gradient * weight[..., None] * self._slope(bent)).to(x)
        x[rows, :, valid:] = 0

    def _bent(self, logits: torch.Tensor) -> torch.Tensor:
        """Divided, then capped, as the model says."""
        numerics = self.setting.numerics
        if numerics.logit_divisor != 1:
            logits = logits / numerics.logit_divisor
        cap = numerics.logit_soft_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _slope(self, bent: torch.Tensor) -> torch.Tensor | float:
        """How much the bent logits change with the logits."""
        numerics = self.setting.numerics
        cap = numerics.logit_soft_cap
        slope: torch.Tensor | float = 1.0 if cap is None else 1 - (bent / cap) ** 2
        return slope / numerics.logit_divisor

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
