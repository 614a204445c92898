"""Expert linear layer y = x·Wₑᵀ (+ bₑ), with the matrix of each row's expert; the weight gradient is deferred to W.

Rows are sorted by expert. The results of several matrices with one input (gate and up) are concatenated. The bias of a
row-parallel matrix is added by the first etp rank alone; every etp rank computes its gradient, as each has all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.operators.operator_types import ExpertLinear, Parameter
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting
from meshwright.runtime.kernels.moe.dispatch_combine import routes_of
from meshwright.runtime.kernels.moe.grouped_gemm import add_weight_product, input_product, product
from meshwright.runtime.kernels.moe.token_permutation import ETP

MATRIX_DIMS = 3


@dataclass(frozen=True)
class ExpertLinearKernel:
    """One or several matrices of every expert of this rank."""

    op: ExpertLinear
    setting: Setting

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the products: (rows, inputs) → (rows, outputs)."""
        if visit.keep.inputs:
            visit.kept["input"] = x
        counts = routes_of(visit).own
        y = torch.cat([product(x, self._view(name, visit), counts) for name in self.matrices], -1)
        if self.biases and (self.op.split != "row" or self.setting.communicator.place_in(ETP) == 0):
            bias = torch.cat([self._view(name, visit) for name in self.biases], -1)
            y += bias.repeat_interleave(torch.tensor(counts, device=y.device), 0)
        return y

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Recompute the result from the saved input."""
        return self.forward(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: OperatorCall) -> None:
        """Save the recomputed input; a frozen layer has no use for it."""
        if not self.op.frozen:
            visit.kept["input"] = x

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return dY·W of each row's expert; save dY and the rows' counts for W."""
        counts = routes_of(visit).own
        if self.op.frozen:
            visit.kept.pop("input", None)
        else:
            visit.kept["output_gradient"], visit.counts = g, counts
            self._add_bias_gradients(g, counts, visit)
        parts = zip(self.matrices, self._parts(g, self.matrices, visit), strict=True)
        return sum(input_product(part, self._view(name, visit), counts) for name, part in parts)  # type: ignore[return-value]

    def _add_bias_gradients(self, g: torch.Tensor, counts: Sequence[int], visit: OperatorCall) -> None:
        for name, part in zip(self.biases, self._parts(g, self.biases, visit), strict=True):
            expert = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(g.device)
            with visit.unit(name).gradients.adding(name) as total:
                total.index_add_(0, expert, part.to(total))

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add dYᵀ·x of each expert."""
        x, g = visit.kept.pop("input"), visit.kept.pop("output_gradient")
        widths = [visit.unit(name).shape(name)[1] for name in self.matrices]
        for name, part in zip(self.matrices, g.split(widths, -1), strict=True):
            with visit.unit(name).gradients.adding(name) as total:
                add_weight_product(total, part, x, visit.counts)

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: experts have no collectives of their own."""
        raise AssertionError(item)
        yield

    @cached_property
    def matrices(self) -> tuple[str, ...]:
        """Names of the weights."""
        return tuple(self.setting.named(p) for p in self.op.parameters if _is_matrix(p))

    @cached_property
    def biases(self) -> tuple[str, ...]:
        """Names of the biases."""
        return tuple(self.setting.named(p) for p in self.op.parameters if not _is_matrix(p))

    def _view(self, name: str, visit: OperatorCall) -> torch.Tensor:
        return visit.unit(name).view(name)

    def _parts(
        self, g: torch.Tensor, names: tuple[str, ...], visit: OperatorCall
    ) -> tuple[torch.Tensor, ...]:
        """Split a gradient's columns by tensor; the second dim of each tensor is its outputs."""
        return g.split([self._view(name, visit).shape[1] for name in names], -1) if names else ()


def _is_matrix(parameter: Parameter) -> bool:
    return len(parameter.shape) == MATRIX_DIMS
