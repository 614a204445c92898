"""Run E, S, T and D of a rank's vocabulary share on one micro-batch: the Program's items, passed to the kernels.

From S to T the share saves X and its logits, which become their own gradient in place. With two exchanges T computes
the gradient; with one, S replaces the logits by the share's own softmax, and T completes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from meshwright.model.operators.operator_types import Linear, Loss, Operator
from meshwright.program.pass_items import Compute, PassKind, Phase
from meshwright.runtime.executor.block_passes import live_bytes
from meshwright.runtime.executor.block_plan import BlockPlan
from meshwright.runtime.executor.operator_call import MicroBatch, OperatorCall
from meshwright.runtime.executor.rank_plan import AnyUnit, RankPlan
from meshwright.runtime.kernels.kernel import Value
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.kernels.vocabulary.cross_entropy import ShareOfLossKernel
from meshwright.runtime.kernels.vocabulary.sharded_softmax import Softmax
from meshwright.runtime.kernels.vocabulary.token_embedding import EmbeddingKernel

K = TypeVar("K")
Results = Mapping[tuple[type[Operator], Phase], Value]
"""Results of a pass by operator and phase."""


@dataclass
class Logits:
    """The result of S: the share's ``softmax`` and, with one exchange, the terms of X's gradient.

    The terms are ``pull``, the share's own softmax times the table, to be scaled, minus the ``targets``' rows.
    """

    softmax: Softmax
    pull: torch.Tensor | None = None
    targets: torch.Tensor | None = None

    def gradient(self) -> torch.Tensor:
        """Return this share's part of the gradient of X, after the softmax is exchanged."""
        assert self.pull is not None
        assert self.targets is not None
        factor = self.softmax.scale * self.softmax.weight
        return (self.pull * factor[..., None] - self.targets).to(self.pull.dtype)


@dataclass
class ShareRun:
    """A share on one micro-batch, from E until D."""

    plan: RankPlan
    share: int
    batch: MicroBatch
    visits: Mapping[str, OperatorCall] = field(init=False)

    def __post_init__(self) -> None:
        self.visits = {
            op.name: OperatorCall(self._unit, self.batch) for block in self._blocks for op in block.operators
        }

    def look_up(self) -> torch.Tensor:
        """E: return the share's rows; zeros for tokens whose rows are on other ranks."""
        (rows,) = self._run("E", self.batch.tokens).values()
        assert isinstance(rows, torch.Tensor)
        return rows

    def logits(self, x: torch.Tensor) -> Logits:
        """S: compute the share's logits from all of X."""
        made = self._run("S", x)
        softmax, pull = made[Loss, "F"], made.get((Linear, "I"))
        if pull is None:
            return Logits(softmax)
        (loss, _), (head, visit) = self.kernel(ShareOfLossKernel), self.kernel(LinearKernel)
        return Logits(softmax, pull, loss.logits.target_rows(head.table(visit), softmax))

    def gradients(self, softmax: Softmax) -> torch.Tensor | None:
        """T, after the exchange: add the table's gradient; with two exchanges return this share's part of X's."""
        (loss, _), (_, visit) = self.kernel(ShareOfLossKernel), self.kernel(LinearKernel)
        if "output_gradient" in visit.kept:
            loss.logits.complete(visit.kept["output_gradient"], softmax)
        gradient: torch.Tensor | None = self._run("T", softmax).get((Linear, "I"))
        return gradient

    def add_rows(self, g: torch.Tensor) -> None:
        """D: add the gradients of the share's rows."""
        kernel, visit = self.kernel(EmbeddingKernel)
        kernel.input_gradient(g, visit)
        self._run("D", None)

    def loss(self, softmax: Softmax) -> torch.Tensor:
        """Return the loss of the micro-batch, which every share knows."""
        return softmax.loss

    def live_bytes(self) -> int:
        """Return the bytes that are saved for later passes."""
        return live_bytes(self.visits.values())

    def _run(self, kind: PassKind, value: Value) -> Results:
        """Run the items of a pass: each operator takes the previous one's result."""
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

    def kernel(self, kind: type[K]) -> tuple[K, OperatorCall]:
        """Return the first kernel of a class, and its operator call."""
        kernels = ((name, kernel) for block in self._blocks for name, kernel in block.kernels.items())
        return next((kernel, self.visits[name]) for name, kernel in kernels if isinstance(kernel, kind))

    def _unit(self, name: str) -> AnyUnit:
        return self.plan.unit_of[name]
