"""Linear maps, activations, norms and caps, written out.

``gelu`` is x·Φ(x) with the error function, ``gelu-tanh`` its approximation (arXiv 1606.08415); BLOOM's constant is
√(2/π) with eight digits.
"""

from collections.abc import Callable, Mapping
from math import pi, sqrt

import torch
from torch import Tensor

from meshwright.model.numerics import ActivationKind, ClampedSwiglu


def linear(tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Return x·Wᵀ, plus the bias if there is one; tensors are ``name``.weight and ``name``.bias."""
    y = x @ tensors[f"{name}.weight"].T
    bias = tensors.get(f"{name}.bias")
    return y if bias is None else y + bias


def normed(x: Tensor, *, centred: bool, epsilon: float) -> Tensor:
    """Return x / √(mean x² + ε) over the last dim; ``centred``: of x minus its mean (LayerNorm)."""
    if centred:
        x = x - x.mean(dim=-1, keepdim=True)
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + epsilon)


def capped(x: Tensor, cap: float | None) -> Tensor:
    """Return cap · tanh(x / cap); x itself without a cap."""
    return x if cap is None else cap * torch.tanh(x / cap)


def clamped_swiglu(clamped: ClampedSwiglu, gate: Tensor, up: Tensor) -> Tensor:
    """Return gate · sigmoid(α · gate) · (up + 1) of clamped values."""
    gate, up = gate.clamp(max=clamped.limit), up.clamp(-clamped.limit, clamped.limit)
    return gate * torch.sigmoid(clamped.alpha * gate) * (up + 1)


def _silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / sqrt(2)))


def _gelu_tanh(x: Tensor, constant: float = sqrt(2 / pi)) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(constant * (x + 0.044715 * x**3)))


def _gelu_bloom(x: Tensor) -> Tensor:
    return _gelu_tanh(x, 0.79788456)


ACTIVATIONS: dict[ActivationKind, Callable[[Tensor], Tensor]] = {
    "silu": _silu,
    "relu": torch.relu,
    "gelu": _gelu,
    "gelu-tanh": _gelu_tanh,
    "gelu-bloom": _gelu_bloom,
}
