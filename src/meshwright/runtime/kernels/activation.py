"""The activation function of a feed-forward layer, gated or not; it saves its input."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from meshwright.model.numerics import ClampedSwiglu
from meshwright.model.operators.operator_types import Activation, ExpertActivation
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting

Function = Callable[[torch.Tensor], torch.Tensor]
Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
BLOOM_SLOPE, BLOOM_CUBE = 0.79788456, 0.044715
"""BLOOM's rounded √(2/π), and the cubic factor of its GELU approximation (arXiv 1606.08415)."""


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
"""Each activation of ``model/numerics.py``, and its gradient as a function of the output's gradient and the input."""
assert math.isclose(BLOOM_SLOPE, math.sqrt(2 / math.pi), rel_tol=1e-6)


def clamped_swiglu(rule: ClampedSwiglu, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return gate · σ(α·gate) · (up + 1), with gate and up clamped to their limits."""
    gate, up = gate.clamp(max=rule.limit), up.clamp(-rule.limit, rule.limit)
    return gate * torch.sigmoid(rule.alpha * gate) * (up + 1)


def clamped_swiglu_gradients(
    rule: ClampedSwiglu, g: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of gate and up; both are zero beyond the limits."""
    within_gate, within_up = gate <= rule.limit, up.abs() <= rule.limit
    gate, up = gate.clamp(max=rule.limit), up.clamp(-rule.limit, rule.limit)
    open_ = torch.sigmoid(rule.alpha * gate)
    slope = open_ * (1 + rule.alpha * gate * (1 - open_))
    return g * (up + 1) * slope * within_gate, g * gate * open_ * within_up


@dataclass(frozen=True)
class ActivationKernel:
    """Activation, or gated activation: f(first half of the width) · second half."""

    op: Activation | ExpertActivation
    setting: Setting

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the activation: (…, width or 2·width) → (…, width)."""
        if visit.keep.inputs:
            visit.kept["input"] = x
        function, _ = self._functions
        if not self.op.gated:
            return function(x)
        gate, up = x.chunk(2, -1)
        if self._clamped:
            return clamped_swiglu(self._clamped, gate, up)
        return function(gate).mul_(up)

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Recompute the result from the saved input."""
        return self.forward(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: OperatorCall) -> None:
        """Save the recomputed input."""
        visit.kept["input"] = x

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the input's gradient, those of both halves concatenated."""
        function, gradient = self._functions
        x = visit.kept.pop("input")
        if not self.op.gated:
            return gradient(g, x)
        gate, up = x.chunk(2, -1)
        both = torch.empty_like(x)
        gate_half, up_half = both.chunk(2, -1)
        if self._clamped:
            of_gate, of_up = clamped_swiglu_gradients(self._clamped, g, gate, up)
            gate_half.copy_(of_gate)
            up_half.copy_(of_up)
            return both
        torch.mul(g, function(gate), out=up_half)
        gate_half.copy_(gradient(g * up, gate))
        return both

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: an activation has no collectives."""
        raise AssertionError(item)
        yield

    @cached_property
    def _clamped(self) -> ClampedSwiglu | None:
        """The clamped SwiGLU that replaces the activation in routed experts; None if there is none."""
        return self.setting.numerics.expert_activation if isinstance(self.op, ExpertActivation) else None

    @property
    def _functions(self) -> tuple[Function, Gradient]:
        own = self.op.function if isinstance(self.op, Activation) else ""
        return ACTIVATIONS[own or self.setting.numerics.activation]
