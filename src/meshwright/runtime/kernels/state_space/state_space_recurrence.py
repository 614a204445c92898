"""The causal filter and the recurrence of Mamba-2 over whole sequences, block by block (arXiv 2405.21060, section 6).

With a_t = Δ_t·A and s_i the sum of a up to position i of a block of C positions, and the state S before it:

    Y = (CBᵀ∘D)·X + exp(s)∘(C·S) with D_ij = exp(s_i − s_j) for j ≤ i      S ← exp(s_C)·S + (exp(s_C − s)∘B)ᵀ·X

where X is Δ∘x. All heads share B and C. Tensors are (positions, batch, …), states (batch, heads, state, head_dim).
"""

from dataclasses import dataclass

import torch
from torch.nn import functional


def causal_filter(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return silu of each channel's sum over the positions before it and its own.

    x (positions, batch, channels), weight (channels, 1, length).
    """
    by_channel = functional.pad(x.permute(1, 2, 0), (weight.shape[-1] - 1, 0))
    found = functional.conv1d(by_channel, weight, bias, groups=len(weight))
    return functional.silu(found.permute(2, 0, 1))


@dataclass(frozen=True)
class Recurrence:
    """The inputs of a recurrence: x (…, heads, head_dim), the logarithm of each step's decay (…, heads), B and C."""

    x: torch.Tensor
    decay: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor

    def output(self, size: int) -> torch.Tensor:
        """Return C_t·h_t at every position, in blocks of ``size`` positions: (positions, batch, heads, head_dim)."""
        _, batch, heads, width = self.x.shape
        state = self.x.new_zeros((batch, heads, self.b.shape[-1], width))
        found = []
        for start in range(0, len(self.x), size):
            part, state = self._block(slice(start, start + size), state)
            found.append(part)
        return torch.cat(found)

    def _block(self, rows: slice, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs of a block, and the state after it."""
        x, b, c = self.x[rows].permute(1, 2, 0, 3), self.b[rows].transpose(0, 1), self.c[rows].transpose(0, 1)
        total = self.decay[rows].permute(1, 2, 0).cumsum(-1)
        between = total[..., :, None] - total[..., None, :]
        later = torch.ones_like(between[0, 0], dtype=torch.bool).triu(1)
        within = between.masked_fill(later, -torch.inf).exp()
        scores = (c @ b.transpose(-1, -2))[:, None] * within
        out = scores @ x + (c[:, None] @ state) * total.exp()[..., None]
        leaving = (total[..., -1:] - total).exp()[..., None] * b[:, None]
        state = state * total[..., -1, None, None].exp() + leaving.transpose(-1, -2) @ x
        return out.permute(2, 0, 1, 3), state
