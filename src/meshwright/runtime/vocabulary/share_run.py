"""E, S, T and D of a rank's share of the vocabulary on one micro-batch: the Program's items, handed to the kernels.

From S to T the share keeps X and its logits, which become their own gradient in place. With two exchanges T makes that;
with one S leaves the share's own softmax of them in their place, and T completes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from meshwright.model.operators import Linear, Loss, Operator
from meshwright.program.items import Compute, PassKind, Phase
from meshwright.runtime.block_plan import BlockPlan
from meshwright.runtime.block_run import live_bytes
from meshwright.runtime.kernels.embedding import EmbeddingKernel
from meshwright.runtime.kernels.kernel import Value
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.kernels.loss import ShareOfLossKernel
from meshwright.runtime.kernels.softmax import Softmax
from meshwright.runtime.rank_plan import RankPlan
from meshwright.runtime.unit import Unit
from meshwright.runtime.visit import MicroBatch, Visit

K = TypeVar("K")
Results = Mapping[tuple[type[Operator], Phase], Value]
"""What each operator has made in each phase of a pass."""


@dataclass
class Logits:
    """What S hands on: ``softmax`` of the share; with one exchange also what the gradient of X is summed from.

    That is the share's own softmax times the table, to be scaled, less the ``targets``' rows.
    """

    softmax: Softmax
    pull: torch.Tensor | None = None
    targets: torch.Tensor | None = None

    def gradient(self) -> torch.Tensor:
        """This share's part of the gradient of X, when the softmax is exchanged."""
        assert self.pull is not None
        assert self.targets is not None
        factor = self.softmax.scale * self.softmax.weight
        return (self.pull * factor[..., None] - self.targets).to(self.pull.dtype)


@dataclass
class ShareRun:
    """A share at work on one micro-batch, from E until D."""

    plan: RankPlan
    share: int
    batch: MicroBatch
    visits: Mapping[str, Visit] = field(init=False)

    def __post_init__(self) -> None:
        self.visits = {
            op.name: Visit(self._unit, self.batch) for block in self._blocks for op in block.operators
        }

    def look_up(self) -> torch.Tensor:
        """E: the share's rows; zeros for tokens whose rows are elsewhere."""
        (rows,) = self._run("E", self.batch.tokens).values()
        assert isinstance(rows, torch.Tensor)
        return rows

    def logits(self, x: torch.Tensor) -> Logits:
        """S, on all of X."""
        made = self._run("S", x)
        softmax, pull = made[Loss, "F"], made.get((Linear, "I"))
        if pull is None:
            return Logits(softmax)
        (loss, _), (head, visit) = self.kernel(ShareOfLossKernel), self.kernel(LinearKernel)
        return Logits(softmax, pull, loss.logits.target_rows(head.table(visit), softmax))

    def gradients(self, softmax: Softmax) -> torch.Tensor | None:
        """T, when the softmax is exchanged: the table's gradient; with two exchanges this share's part of that of X."""
        (loss, _), (_, visit) = self.kernel(ShareOfLossKernel), self.kernel(LinearKernel)
        if "output_gradient" in visit.kept:
            loss.logits.complete(visit.kept["output_gradient"], softmax)
        gradient: torch.Tensor | None = self._run("T", softmax).get((Linear, "I"))
        return gradient

    def add_rows(self, g: torch.Tensor) -> None:
        """D: the gradients of the share's rows."""
        kernel, visit = self.kernel(EmbeddingKernel)
        kernel.input_gradient(g, visit)
        self._run("D", None)

    def loss(self, softmax: Softmax) -> torch.Tensor:
        """The loss of the micro-batch, which every share knows."""
        return softmax.loss

    def live_bytes(self) -> int:
        """Bytes that are kept for later passes."""
        return live_bytes(self.visits.values())

    def _run(self, kind: PassKind, value: Value) -> Results:
        """The items of a pass: each operator works on what the one before has made."""
        made = {}
        for block in self._blocks:
            for item in block.items[kind]:
                assert isinstance(item, Compute), item
                kernel, visit = block.kernels[item.operator.name], self.visits[item.operator.name]
                if item.phase == "F":
                    value = kernel.forward(value, visit)
                elif item.phase == "I":
                    value = kernel.input_gradient(value, visit)
                else:
                    kernel.weight_gradient(visit)
                made[type(item.operator), item.phase] = value
        return made

    @property
    def _blocks(self) -> tuple[BlockPlan, ...]:
        return self.plan.blocks[self.share]

    def kernel(self, kind: type[K]) -> tuple[K, Visit]:
        """The kernel of a kind, and its visit."""
        kernels = ((name, kernel) for block in self._blocks for name, kernel in block.kernels.items())
        return next((kernel, self.visits[name]) for name, kernel in kernels if isinstance(kernel, kind))

    def _unit(self, name: str) -> Unit:
        return self.plan.unit_of[name]
