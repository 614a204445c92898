"""Cross-entropy over a vocabulary that is cut over ranks, with the gradient made in place of the logits.

Where tp cuts it, all of a micro-batch is done in its forward pass: it turns the logits into their gradient,
softmax − one-hot, at once, and nothing else is kept. Of a vocabulary that is spread over pipeline ranks each has a part
(``ShareOfLossKernel``): other passes run until the parts have come together. With two exchanges the gradient waits for
that; with one, I makes the part's own softmax of the logits before, and ``complete`` the gradient of that later.

The value is Σ over counted labels of −log p, divided by the number of labels of the whole batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from meshwright.model.operators import Loss
from meshwright.program.items import Collective
from meshwright.runtime.kernels.cut_logits import CutLogits
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.softmax import Softmax
from meshwright.runtime.visit import MicroBatch, Visit


@dataclass(frozen=True)
class LossKernel:
    """Logits (sequence, batch, vocabulary/tp) → the loss of this micro-batch, a number on every tp rank."""

    op: Loss
    setting: Setting

    @cached_property
    def logits(self) -> CutLogits:
        """The arithmetic of this rank's part."""
        return CutLogits(self.op, self.setting)

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """The maximum first, then the sums that need it."""
        batch = self._batch(visit)
        if "part" not in visit.kept:
            visit.kept["part"] = self.logits.part(x, batch)
        yield from Softmax(batch, visit.kept).exchange(item, self.setting.communicator)
        return x

    def forward(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """The loss; ``x`` becomes its own gradient."""
        softmax = Softmax(self._batch(visit), visit.kept)
        if not softmax.exchanged:  # all of it is here
            visit.kept["part"] = self.logits.part(x, softmax.batch)
            softmax.take_maximum()
            softmax.take_sums()
        self.logits.differentiate(x, softmax)
        loss = softmax.loss
        visit.kept.clear()
        if visit.keep.inner:
            visit.kept["gradient"] = x
        return loss

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

    def _batch(self, visit: Visit) -> MicroBatch:
        """The micro-batch, whose labels count as much as the operator's loss does."""
        return replace(visit.batch, divisor=visit.batch.divisor / self.op.weight)


@dataclass(frozen=True)
class ShareOfLossKernel:
    """Logits of a share (sequence, batch, vocabulary/(pp·tp)) → what it adds to the softmax."""

    op: Loss
    setting: Setting

    @cached_property
    def logits(self) -> CutLogits:
        """The arithmetic of this rank's part."""
        return CutLogits(self.op, self.setting)

    def forward(self, x: torch.Tensor, visit: Visit) -> Softmax:
        """What is exchanged; the logits wait."""
        visit.kept["logits"] = x
        return Softmax(visit.batch, {"part": self.logits.part(x, visit.batch)})

    def again(self, visit: Visit) -> torch.Tensor:
        """The loss is not recomputed."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: Visit) -> None:
        """It keeps no input."""

    def input_gradient(self, softmax: Softmax, visit: Visit) -> torch.Tensor:
        """The gradient of the logits in their place; of what is not exchanged yet the share's own softmax."""
        x = visit.kept.pop("logits")
        if softmax.exchanged:
            self.logits.differentiate(x, softmax)
        else:
            self.logits.soften(x, softmax)
        return x

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """Shares come together in exchanges of their own."""
        raise AssertionError(item)
        yield
