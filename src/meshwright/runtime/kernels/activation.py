"""The non-linearity between the two products of a feed-forward layer, gated or not; its input is kept."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from meshwright.model.operators import Activation
from meshwright.program.items import Collective
from meshwright.runtime.kernels.kernel import Exchange, Setting
from meshwright.runtime.visit import Visit

Function = Callable[[torch.Tensor], torch.Tensor]
Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
BLOOM_SLOPE, BLOOM_CUBE = 0.79788456, 0.044715
"""BLOOM's rounded √(2/π), and the cube's factor of the approximation (Hendrycks and Gimpel, arXiv 1606.08415)."""


def _bloom(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1 + torch.tanh(BLOOM_SLOPE * x * (1 + BLOOM_CUBE * x * x)))


def _bloom_gradient(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    t = torch.tanh(BLOOM_SLOPE * x * (1 + BLOOM_CUBE * x * x))
    slope = 0.5 * x * (1 - t * t) * BLOOM_SLOPE * (1 + 3 * BLOOM_CUBE * x * x)
    return g * (slope + 0.5 * (1 + t))


ACTIVATIONS: Mapping[str, tuple[Function, Gradient]] = {
    "silu": (functional.silu, torch.ops.aten.silu_backward),
    "relu": (functional.relu, lambda g, x: torch.ops.aten.threshold_backward(g, x, 0)),
    "gelu": (functional.gelu, torch.ops.aten.gelu_backward),
    "gelu-tanh": (
        lambda x: functional.gelu(x, approximate="tanh"),
        lambda g, x: torch.ops.aten.gelu_backward(g, x, approximate="tanh"),
    ),
    "gelu-bloom": (_bloom, _bloom_gradient),
}
"""Each activation of ``model/numerics.py`` and its gradient from that of its output and its input."""
assert math.isclose(BLOOM_SLOPE, math.sqrt(2 / math.pi), rel_tol=1e-6)


@dataclass(frozen=True)
class ActivationKernel:
    """Gated: the first half of the width decides how much of the second passes."""

    op: Activation
    setting: Setting

    def forward(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """(…, width or 2·width) → (…, width)."""
        if visit.keep.inputs:
            visit.kept["input"] = x
        function, _ = self._functions
        if not self.op.gated:
            return function(x)
        gate, up = x.chunk(2, -1)
        return function(gate).mul_(up)

    def again(self, visit: Visit) -> torch.Tensor:
        """On the kept input."""
        return self.forward(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: Visit) -> None:
        """Keep it now."""
        visit.kept["input"] = x

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """The gradient of the input, both halves next to each other."""
        function, gradient = self._functions
        x = visit.kept.pop("input")
        if not self.op.gated:
            return gradient(g, x)
        gate, up = x.chunk(2, -1)
        both = torch.empty_like(x)
        ahead, beside = both.chunk(2, -1)
        torch.mul(g, function(gate), out=beside)
        ahead.copy_(gradient(g * up, gate))
        return both

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """An activation exchanges nothing."""
        raise AssertionError(item)
        yield

    @property
    def _functions(self) -> tuple[Function, Gradient]:
        return ACTIVATIONS[self.setting.numerics.activation]
