"""Cross-entropy over a vocabulary that is cut over ranks; the gradient replaces the logits in place.

If tp cuts it, the forward pass does all of a micro-batch: it turns the logits into their gradient, softmax − one-hot,
at once, and saves nothing else. If the vocabulary is spread over pipeline ranks, each has a part
(``ShareOfLossKernel``), and other passes run until the parts are combined. With two exchanges the gradient waits for
that; with one, I first computes the part's own softmax of the logits, and ``complete`` turns it into the gradient.

The value is Σ over counted labels of −log p, divided by the number of labels of the whole batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from meshwright.model.operators.operator_types import Loss
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import MicroBatch, OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.vocabulary.sharded_logits import ShardedLogits
from meshwright.runtime.kernels.vocabulary.sharded_softmax import Softmax


@dataclass(frozen=True)
class LossKernel:
    """Loss kernel: logits (sequence, batch, vocabulary/tp) → the micro-batch's loss, equal on all tp ranks."""

    op: Loss
    setting: Setting

    @cached_property
    def logits(self) -> ShardedLogits:
        """The arithmetic of this rank's part."""
        return ShardedLogits(self.op, self.setting)

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Reduce the maximum first, then the sums that depend on it."""
        batch = self._batch(visit)
        if "part" not in visit.kept:
            visit.kept["part"] = self.logits.part(x, batch)
        yield from Softmax(batch, visit.kept).exchange(item, self.setting.communicator)
        return x

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the loss; ``x`` is overwritten by its gradient."""
        softmax = Softmax(self._batch(visit), visit.kept)
        if not softmax.exchanged:  # this rank has the whole vocabulary
            visit.kept["part"] = self.logits.part(x, softmax.batch)
            softmax.take_maximum()
            softmax.take_sums()
        self.logits.differentiate(x, softmax)
        loss = softmax.loss
        visit.kept.clear()
        if visit.keep.inner:
            visit.kept["gradient"] = x
        return loss

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: the loss is not recomputed."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: the loss saves no input."""

    def input_gradient(self, g: None, visit: OperatorCall) -> torch.Tensor:
        """Return the gradient of the logits, which the forward pass has computed."""
        return visit.kept.pop("gradient")

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def _batch(self, visit: OperatorCall) -> MicroBatch:
        """Return the micro-batch with its divisor scaled by the operator's loss weight."""
        return replace(visit.batch, divisor=visit.batch.divisor / self.op.weight)


@dataclass(frozen=True)
class ShareOfLossKernel:
    """Loss kernel of a vocabulary share: logits (sequence, batch, vocabulary/(pp·tp)) → its part of the softmax."""

    op: Loss
    setting: Setting

    @cached_property
    def logits(self) -> ShardedLogits:
        """The arithmetic of this rank's part."""
        return ShardedLogits(self.op, self.setting)

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> Softmax:
        """Return the softmax statistics to exchange, and save the logits."""
        visit.kept["logits"] = x
        return Softmax(visit.batch, {"part": self.logits.part(x, visit.batch)})

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: the loss is not recomputed."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: the loss saves no input."""

    def input_gradient(self, softmax: Softmax, visit: OperatorCall) -> torch.Tensor:
        """Return the gradient of the logits, in place; before the exchange, the share's own softmax."""
        x = visit.kept.pop("logits")
        if softmax.exchanged:
            self.logits.differentiate(x, softmax)
        else:
            self.logits.soften(x, softmax)
        return x

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: shares are combined by exchange actions of their own."""
        raise AssertionError(item)
        yield
