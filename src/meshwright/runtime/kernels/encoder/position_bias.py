"""Scores by relative position: a table's row for the bucket of each query and key (T5, arXiv 1910.10683, section 2.1).

Half of the buckets of one direction are for distances of their own, the others grow logarithmically up to the largest
distance, from which on all share the last.
"""

import math
from dataclasses import dataclass

import torch

from meshwright.model.operators.operator_types import PositionBias
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value


@dataclass(frozen=True)
class PositionBiasKernel:
    """Scores of this rank's heads: (heads, queries, keys), for all sequences and layers."""

    op: PositionBias
    setting: Setting

    @property
    def name(self) -> str:
        """The full name of the table."""
        (table,) = self.op.parameters
        return self.setting.named(table)

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the scores, ignoring ``x``."""
        table = visit.unit(self.name).view(self.name)
        scores = table[self._buckets(table.device)].permute(2, 0, 1).contiguous()
        if visit.keep.inner:
            visit.kept["scores"] = scores
        return scores

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: scores by position are kept."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: positions are no input."""

    def input_gradient(self, g: torch.Tensor | None, visit: OperatorCall) -> None:
        """Save the gradient of the scores for W; positions have none."""
        visit.kept.pop("scores", None)
        if g is not None:
            visit.kept["output_gradient"] = g

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add the gradient of each score to its bucket's row."""
        g = visit.kept.pop("output_gradient")
        with visit.unit(self.name).gradients.adding(self.name) as total:
            rows = self._buckets(g.device).flatten()
            total.index_add_(0, rows, g.permute(1, 2, 0).flatten(0, 1).to(total))

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: scores by position have no collectives."""
        raise AssertionError(item)
        yield

    def _buckets(self, device: torch.device) -> torch.Tensor:
        length = int(self.setting.shape.of(self.op).seq_len)

        def made() -> torch.Tensor:
            places = torch.arange(length, device=device)
            return relative_buckets(places[None] - places[:, None], self.op)

        return self.setting.tables.get(("position buckets", self.op.name), made)


def relative_buckets(distance: torch.Tensor, op: PositionBias) -> torch.Tensor:
    """Return the bucket of each distance, key's position minus query's."""
    buckets, first = op.buckets, torch.zeros_like(distance)
    if op.bidirectional:
        buckets //= 2
        first = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    ratio = torch.log(distance.clamp(min=1).float() / exact) / math.log(op.max_distance / exact)
    far = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)
