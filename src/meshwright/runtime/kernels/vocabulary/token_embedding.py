"""Token embedding with rows cut over tp, and learned positions.

Each tp rank looks up the tokens whose rows it holds and gives zeros for the others; leaving the tensor-parallel region
sums them. Positions, which every rank holds whole, are added by the first rank alone. With a spread vocabulary a rank
holds a part of a pipeline rank's rows; positions are then an operator of the first stage (``learned_positions.py``).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from meshwright.model.operators.operator_types import Embedding
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.vocabulary.learned_positions import add_by_position


@dataclass(frozen=True)
class EmbeddingKernel:
    """Embedding lookup: token ids (sequence, batch) → (sequence, batch, hidden)."""

    op: Embedding
    setting: Setting

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The table's full name, then that of the positions if there are any."""
        return self.setting.names_of(self.op)

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Look up the micro-batch's tokens, ignoring ``x``; ids outside this rank's rows give zeros."""
        table = visit.unit(self.names[0]).view(self.names[0])
        rows, outside = self._rows(self._ids(visit), len(table))
        y = self._scaled(functional.embedding(rows, table))
        if outside is not None:
            y.masked_fill_(outside[..., None], 0)
        for name in self.names[1:]:
            if self.setting.tp_rank == 0:
                y += visit.unit(name).view(name)[visit.batch.positions(self.setting.positions)]
        return y

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Look up the tokens again."""
        return self.forward(None, visit)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: an embedding saves no input."""

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> None:
        """Save the gradient of the rows for W; tokens have no gradient."""
        if not self.op.frozen:
            visit.kept["output_gradient"] = g

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add each token's gradient to its row, and to its position."""
        g = visit.kept.pop("output_gradient")
        for name in self.names[1:]:
            if self.setting.counts_whole:
                positions = visit.batch.positions(self.setting.positions)
                with visit.unit(name).gradients.adding(name) as total:
                    add_by_position(total, positions, g)
        with visit.unit(self.names[0]).gradients.adding(self.names[0]) as total:
            rows, outside = self._rows(self._ids(visit), len(total))
            scaled = self._scaled(g.to(total))
            if outside is not None:
                scaled = scaled.masked_fill(outside[..., None], 0)
            total.index_add_(0, rows.flatten(), scaled.flatten(0, 1))

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: an embedding has no collectives of its own."""
        raise AssertionError(item)
        yield

    def _ids(self, visit: OperatorCall) -> torch.Tensor:
        """Return the ids that are looked up: those of the text, or of the encoder's."""
        if self.op.tokens == "text":
            return visit.batch.tokens
        assert visit.batch.encoder is not None
        return visit.batch.encoder

    def _rows(self, tokens: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.setting.vocabulary_parts == 1:
            return tokens, None
        local = tokens - self.setting.vocabulary_part * rows
        outside = (local < 0) | (local >= rows)
        return local.masked_fill(outside, 0), outside

    def _scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x if self._multiplier == 1 else x * self._multiplier

    @cached_property
    def _multiplier(self) -> float:
        numerics = self.setting.numerics
        if not numerics.embedding_multiplier_rounded:
            return numerics.embedding_multiplier
        return torch.tensor(numerics.embedding_multiplier, dtype=self.setting.precision.compute).item()
