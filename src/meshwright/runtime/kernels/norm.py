"""RMSNorm and LayerNorm over the last dim; only the input is saved, and I recomputes the statistics.

RMSNorm (Zhang and Sennrich, arXiv 1910.07467): y = x̂·w, x̂ = x/√(mean x² + ε). Its gradient is dx = (w·g −
x̂·mean(w·g·x̂))/√(mean x² + ε), dw = Σ g·x̂. LayerNorm (Ba et al., arXiv 1607.06450) subtracts the mean first.
Statistics and x̂ are in single precision at least.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.operators.operator_types import Norm
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value


@dataclass(frozen=True)
class NormKernel:
    """A norm of the residual stream, or of a value in the tensor-parallel region."""

    op: Norm
    setting: Setting

    def forward(self, x: Value, visit: OperatorCall) -> Value:
        """Return the normalised value: (…, width) → (…, width)."""
        if visit.keep.inputs:
            visit.kept["input"] = x
        return self._normalised(x, visit)

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Recompute the result from the saved input."""
        return self._normalised(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: OperatorCall) -> None:
        """Save the recomputed input."""
        visit.kept["input"] = x

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the input's gradient; add those of weight and bias, which need no matrix product."""
        return self._gradient(g, visit.kept.pop("input"), visit)

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: weight and bias are done with the input's gradient."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: a norm has no collectives."""
        raise AssertionError(item)
        yield

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The full names of weight and bias."""
        return self.setting.names_of(self.op)

    @property
    def epsilon(self) -> float:
        """ε of the statistics."""
        return self.setting.architecture.norm_epsilon

    def _parameters(self, visit: OperatorCall) -> list[torch.Tensor]:
        return [visit.unit(name).view(name) for name in self.names]

    def _normalised(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        if self.setting.architecture.centred_norms:
            weight, bias = _weight_and_bias(self._parameters(visit))
            return torch.layer_norm(x, (self.op.width,), weight, bias, self.epsilon)
        (weight,) = self._parameters(visit)
        wide = x.to(self.setting.precision.statistic)
        centred = wide * self._inverse_root(wide)
        if self.setting.numerics.norm_weight_in_fp32:
            return (centred * self._scale(weight.to(wide))).to(x)
        return centred.to(x) * self._scale(weight)

    def _gradient(self, g: torch.Tensor, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        if self.setting.architecture.centred_norms:
            return self._layer_norm_gradient(g, x, visit)
        (weight,) = self._parameters(visit)
        wide, wide_g = x.to(self.setting.precision.statistic), g.to(self.setting.precision.statistic)
        scale, factor = self._inverse_root(wide), self._scale(weight.to(wide))
        centred = wide * scale
        product = wide_g * centred
        if not self.op.frozen:
            self._add(0, product.flatten(0, -2).sum(0), visit)
        mean = (product @ factor)[..., None] / self.op.width
        return (wide_g * factor).addcmul_(centred, mean, value=-1).mul_(scale).to(x)

    def _inverse_root(self, x: torch.Tensor) -> torch.Tensor:
        """Return 1/√(mean x² + ε) of every row."""
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        return squares.div_(self.op.width).add_(self.epsilon).rsqrt_()

    def _layer_norm_gradient(self, g: torch.Tensor, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        shape, epsilon = (self.op.width,), self.epsilon
        weight, bias = _weight_and_bias(self._parameters(visit))
        learns = not self.op.frozen and weight is not None
        _, mean, scale = torch.native_layer_norm(x, shape, weight, bias, epsilon)
        dx, dw, db = torch.ops.aten.native_layer_norm_backward(
            g.contiguous(), x, shape, mean, scale, weight, bias, (True, learns, learns)
        )
        if learns:
            self._add(0, dw, visit)
            self._add(1, db, visit)
        return dx

    def _scale(self, weight: torch.Tensor) -> torch.Tensor:
        offset = self.setting.numerics.norm_offset
        return weight + offset if offset else weight

    def _add(self, which: int, gradient: torch.Tensor, visit: OperatorCall) -> None:
        name = self.names[which]
        with visit.unit(name).gradients.adding(name) as total:
            total.add_(gradient)


def _weight_and_bias(found: list[torch.Tensor]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return those of a LayerNorm, None for a bare one."""
    return (found[0], found[1]) if found else (None, None)


@dataclass(frozen=True)
class HeadNormKernel(NormKernel):
    """A norm of each query head or each key head, between the projection and attention.

    Its value is a tuple of queries, keys and values: the normalised ones are new tensors, the others remain in the
    projection's buffer.
    """

    part: int = 0
    widths: tuple[int, int, int] = (0, 0, 0)

    def forward(self, x: Value, visit: OperatorCall) -> Value:
        """Normalise one of (queries, keys, values), (sequence, batch, heads · head_dim) each."""
        parts = list(x.split(self.widths, -1) if isinstance(x, torch.Tensor) else x)
        heads = parts[self.part].unflatten(-1, (-1, self.op.width))
        parts[self.part] = super().forward(heads, visit).flatten(-2)
        return tuple(parts)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Compute the gradient in place in the heads' part of the fused gradient, and return that."""
        part = g.split(self.widths, -1)[self.part]
        heads = part.unflatten(-1, (-1, self.op.width))
        part.copy_(self._gradient(heads, visit.kept.pop("input"), visit).flatten(-2))
        return g
