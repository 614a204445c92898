"""Learned positions as an operator of the first stage, if the token table is spread over all pipeline ranks.

They are added after the ranks' lookups are summed, so with sequence parallelism each tp rank adds those of its part of
the sequence; gradients of parameters that tp does not cut are then summed over tp.
"""

from dataclasses import dataclass

import torch

from meshwright.model.operators.operator_types import Embedding
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value


@dataclass(frozen=True)
class PositionsKernel:
    """Position embedding: x (sequence, batch, hidden) + the positions of its tokens."""

    op: Embedding
    setting: Setting

    @property
    def name(self) -> str:
        """The full name of the table."""
        (table,) = self.op.parameters
        return self.setting.named(table)

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return ``x`` plus the positions."""
        return x + visit.unit(self.name).view(self.name)[self._here(x, visit)]

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: embeddings are not recomputed."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: positions save no input."""

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return ``g`` unchanged, and save it for W."""
        if not self.op.frozen:
            visit.kept["output_gradient"] = g
        return g

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add each token's gradient to its position."""
        g = visit.kept.pop("output_gradient")
        with visit.unit(self.name).gradients.adding(self.name) as total:
            add_by_position(total, self._here(g, visit), g)

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: positions have no collectives."""
        raise AssertionError(item)
        yield

    def _here(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the positions of this rank's part of the sequence."""
        first = self.setting.tp_rank * len(x) if self.setting.sequence_parallel else 0
        return visit.batch.positions(self.setting.positions[first : first + len(x)])


def add_by_position(total: torch.Tensor, positions: torch.Tensor, g: torch.Tensor) -> None:
    """Add gradients (sequence, batch, hidden) to rows of a table; positions are (sequence, batch), or (sequence, 1)."""
    rows = g.sum(1, keepdim=True) if positions.shape[1] == 1 else g
    total.index_add_(0, positions.flatten(), rows.flatten(0, 1).to(total))
