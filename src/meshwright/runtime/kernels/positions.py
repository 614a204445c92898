"""Learned positions by themselves: in the first stage, where the table of tokens is spread over all pipeline ranks.

They are added when what the ranks looked up is summed up, so with sequence parallelism each tp rank adds those of its
part of the sequence; gradients of what tp does not cut are summed over tp then.
"""

from dataclasses import dataclass

import torch

from meshwright.model.operators import Embedding
from meshwright.program.items import Collective
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.visit import Visit


@dataclass(frozen=True)
class PositionsKernel:
    """x (sequence, batch, hidden) + the positions of its tokens."""

    op: Embedding
    setting: Setting

    @property
    def name(self) -> str:
        """The full name of the table."""
        (table,) = self.op.parameters
        return self.setting.named(table)

    def forward(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Add them."""
        return x + visit.unit(self.name).view(self.name)[self._here(x, visit)]

    def again(self, visit: Visit) -> torch.Tensor:
        """Embeddings are not recomputed."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: Visit) -> None:
        """It keeps no input."""

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """As it comes; it stays until W too."""
        visit.kept["output_gradient"] = g
        return g

    def weight_gradient(self, visit: Visit) -> None:
        """Add each token's gradient to its position."""
        g = visit.kept.pop("output_gradient")
        add_by_position(visit.unit(self.name).gradient_of(self.name), self._here(g, visit), g)

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """Positions exchange nothing by themselves."""
        raise AssertionError(item)
        yield

    def _here(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """The positions of this rank's part of the sequence."""
        first = self.setting.tp_rank * len(x) if self.setting.sequence_parallel else 0
        return visit.batch.positions(self.setting.positions[first : first + len(x)])


def add_by_position(total: torch.Tensor, positions: torch.Tensor, g: torch.Tensor) -> None:
    """Add gradients (sequence, batch, hidden) to rows of a table; positions are (sequence, batch), or 1 for all."""
    rows = g.sum(1, keepdim=True) if positions.shape[1] == 1 else g
    total.index_add_(0, positions.flatten(), rows.flatten(0, 1).to(total))
