"""A softmax whose logits lie on several ranks: what each of them adds to it, and what all of it is, token by token.

Per token: the maximum over all ranks, then the sums of exponentials and the target's logit (Megatron-LM, arXiv
1909.08053, section 3).
"""

from dataclasses import dataclass

import torch

from meshwright.program.bodies import LOSS_STATISTICS
from meshwright.program.items import Collective
from meshwright.runtime.communicator import Communicator
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.visit import MicroBatch

IGNORED = -100


@dataclass(frozen=True)
class Softmax:
    """``numbers`` of every token, (sequence, batch), by name.

    ``part`` are those of this rank's columns: their maximum, the largest value of their own softmax, and the target's
    logit (0 where that is elsewhere). ``maximum`` and ``sums`` (of exponentials and of target logits) are of all ranks,
    once they are exchanged.
    """

    batch: MicroBatch
    numbers: dict[str, torch.Tensor]

    def exchange(self, item: Collective, communicator: Communicator) -> Exchange:
        """Bring all parts together: the maximum first, then the sums that need it."""
        (maximum, width), (sums, wide) = LOSS_STATISTICS
        if item.what.endswith(maximum):
            self.take_maximum()
            yield communicator.start(item, self.numbers["maximum"], width, largest=True)
        else:
            assert item.what.endswith(sums), item
            self.take_sums()
            yield communicator.start(item, self.numbers["sums"], wide // 2)

    def take_maximum(self) -> None:
        """This part's own."""
        self.numbers["maximum"] = self.part[0].clone()

    def take_sums(self) -> None:
        """This part's own."""
        self.numbers["sums"] = torch.stack([self._own_sum(), self.part[2]])

    @property
    def part(self) -> torch.Tensor:
        """This rank's own numbers."""
        return self.numbers["part"]

    @property
    def exchanged(self) -> bool:
        """Whether the parts have come together."""
        return "sums" in self.numbers

    @property
    def scale(self) -> torch.Tensor:
        """The share of this part in the sum of all: what its own softmax is to be multiplied by."""
        return self._own_sum() / self.numbers["sums"][0]

    @property
    def weight(self) -> torch.Tensor:
        """What each token's loss counts: one over all labels of the batch, or nothing."""
        return (self.batch.labels != IGNORED).to(self.part) / self.batch.divisor

    @property
    def loss(self) -> torch.Tensor:
        """Σ over counted labels of −log p, divided by the number of labels of the whole batch."""
        total, target = self.numbers["sums"]
        losses = total.log() + self.numbers["maximum"] - target
        return losses.masked_fill_(self.batch.labels == IGNORED, 0).sum() / self.batch.divisor

    def _own_sum(self) -> torch.Tensor:
        """Of this part's exponentials, relative to the maximum of all."""
        return torch.exp(self.part[0] - self.numbers["maximum"]) / self.part[1]
