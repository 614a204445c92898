"""Fused kernels as autograd functions that allocate and save what the CUDA kernels do, and compute no values.

A CPU build of PyTorch runs RMSNorm as a chain of eager operators; on CUDA it is one kernel
(``aten._fused_rms_norm``). Rotary positions and SwiGLU are what torch.compile makes of them: one kernel each way.
"""

from typing import Any

import torch
from torch import Tensor, nn


class FusedRMSNorm(nn.Module):
    """RMSNorm that saves its input and one statistic per row."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return _RMSNorm.apply(x, self.weight)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        statistic = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
        ctx.save_for_backward(x, weight, statistic)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class SwiGLU(torch.autograd.Function):
    """silu(gate)·up that saves both inputs."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """Return a tensor of the inputs' shape."""
        ctx.save_for_backward(gate, up)
        return torch.empty_like(gate)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of both inputs."""
        gate, up = ctx.saved_tensors
        return torch.empty_like(gate), torch.empty_like(up)


class Rotary(torch.autograd.Function):
    """Rotary positions: the backward pass rotates back and needs no saved tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return a tensor of the input's shape."""
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """Return the gradient of the input."""
        return torch.empty_like(g)
