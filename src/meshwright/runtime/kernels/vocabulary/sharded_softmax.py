"""Statistics of a softmax whose logits lie on several ranks: each rank's part, and the whole, token by token.

Per token: the maximum over all ranks, then the sums of exponentials and the target's logit (Megatron-LM, arXiv
1909.08053, section 3).
"""

from dataclasses import dataclass

import torch

from meshwright.program.lowering.block_items import LOSS_STATISTICS
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.kernels.kernel import Exchange

IGNORED = -100


@dataclass(frozen=True)
class Softmax:
    """Softmax statistics of every token: ``numbers`` by name, each over (sequence, batch).

    ``part`` are those of this rank's columns: their maximum, the largest value of their own softmax, and the target's
    logit (0 if elsewhere). ``maximum`` and ``sums`` (of exponentials and of target logits) are those of all ranks,
    after the exchange.
    """

    batch: MicroBatch
    numbers: dict[str, torch.Tensor]

    def exchange(self, item: Collective, communicator: Communicator) -> Exchange:
        """Combine all parts: the maximum first, then the sums that depend on it."""
        (maximum, width), (sums, wide) = LOSS_STATISTICS
        if item.what.endswith(maximum):
            self.take_maximum()
            yield communicator.start(item, self.numbers["maximum"], width, largest=True)
        else:
            assert item.what.endswith(sums), item
            self.take_sums()
            yield communicator.start(item, self.numbers["sums"], wide // 2)

    def take_maximum(self) -> None:
        """Set the maximum to this part's own."""
        self.numbers["maximum"] = self.part[0].clone()

    def take_sums(self) -> None:
        """Set the sums to this part's own, relative to the maximum of all."""
        self.numbers["sums"] = torch.stack([self._own_sum(), self.part[2]])

    @property
    def part(self) -> torch.Tensor:
        """Numbers of this rank's columns."""
        return self.numbers["part"]

    @property
    def exchanged(self) -> bool:
        """True if the parts have been combined."""
        return "sums" in self.numbers

    @property
    def scale(self) -> torch.Tensor:
        """Share of this part in the sum over all: the factor of its own softmax."""
        return self._own_sum() / self.numbers["sums"][0]

    @property
    def weight(self) -> torch.Tensor:
        """Each token's weight in the loss: one over all labels of the batch, or zero if its label is ignored."""
        return (self.batch.labels != IGNORED).to(self.part) / self.batch.divisor

    @property
    def loss(self) -> torch.Tensor:
        """Σ over counted labels of −log p, divided by the number of labels of the whole batch."""
        total, target = self.numbers["sums"]
        losses = total.log() + self.numbers["maximum"] - target
        return losses.masked_fill_(self.batch.labels == IGNORED, 0).sum() / self.batch.divisor

    def _own_sum(self) -> torch.Tensor:
        """Return the sum of this part's exponentials, relative to the maximum of all."""
        return torch.exp(self.part[0] - self.numbers["maximum"]) / self.part[1]
