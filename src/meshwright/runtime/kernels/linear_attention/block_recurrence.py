"""Linear attention over a range of positions, block by block, and its gradient.

A head's state is S_t = λ·S_{t−1} + k_tᵀ·v_t and o_t = q_t·S_t. For a block of C positions with Λ_i = λ^(i+1),
Γ_j = λ^(C−1−j), D_ij = λ^(i−j) for j ≤ i, and the state S before it (lightning attention, arXiv 2405.17381, section 3):

    O = (QKᵀ∘D)·V + Λ∘(Q·S)             S ← λ^C·S + (Γ∘K)ᵀ·V
    dQ = (dO·Vᵀ∘D)·K + Λ∘(dO·Sᵀ)        dS ← λ^C·dS + (Λ∘Q)ᵀ·dO, dS being that of the state after the block
    dK = (dO·Vᵀ∘D)ᵀ·Q + Γ∘(V·dSᵀ)       dV = (QKᵀ∘D)ᵀ·dO + (Γ∘K)·dS

Tensors are (batch, heads, positions, head_dim), states (batch, heads, head_dim, head_dim), rates = −ln λ (heads,).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch

from meshwright.runtime.kernels.attention.scaled_dot_product import Triple


@dataclass(frozen=True)
class Decay:
    """The decay of each head; kernels process blocks of ``size`` positions."""

    rates: torch.Tensor
    size: int
    _made: dict[int, "Block"] = field(default_factory=dict)

    def after(self, positions: torch.Tensor) -> torch.Tensor:
        """Return λ to the power of each number of positions: (heads, …), 0 for negative ones."""
        spread = self.rates.view(-1, *(1,) * positions.dim())
        return torch.where(positions >= 0, torch.exp(-spread * positions.clamp(min=0)), 0.0)

    def blocks(self, length: int) -> Iterator[tuple[slice, "Block"]]:
        """Yield the blocks of a range of positions, in order."""
        for start in range(0, length, self.size):
            stop = min(start + self.size, length)
            yield slice(start, stop), self.of(stop - start)

    def of(self, length: int) -> "Block":
        """Return the decay factors of a block of ``length`` positions."""
        return self._made.setdefault(length, Block(self, length))


@dataclass(frozen=True)
class Block:
    """Decay factors (heads, positions, …) within ``length`` positions."""

    decay: Decay
    length: int

    @cached_property
    def places(self) -> torch.Tensor:
        """The positions."""
        return torch.arange(self.length, device=self.decay.rates.device)

    @cached_property
    def within(self) -> torch.Tensor:
        """D: from each position to each."""
        return self.decay.after(self.places[:, None] - self.places)

    @cached_property
    def entering(self) -> torch.Tensor:
        """Λ: from before the block to each position."""
        return self.decay.after(self.places + 1)[..., None]

    @cached_property
    def leaving(self) -> torch.Tensor:
        """Γ: from each position to the last."""
        return self.decay.after(self.length - 1 - self.places)[..., None]

    @cached_property
    def through(self) -> torch.Tensor:
        """λ^C: from before the block to its end."""
        return self.entering[:, -1:]


def state_after(k: torch.Tensor, v: torch.Tensor, decay: Decay) -> torch.Tensor:
    """Return the state after a range of positions that begins with a zero state."""
    return (k * decay.of(k.shape[2]).leaving).transpose(-1, -2) @ v


def entering_gradient(q: torch.Tensor, g: torch.Tensor, decay: Decay) -> torch.Tensor:
    """Return this range's part of the gradient of the state that enters it."""
    return (q * decay.of(q.shape[2]).entering).transpose(-1, -2) @ g


def linear_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: Decay, state: torch.Tensor
) -> torch.Tensor:
    """Return the output of a range of positions that begins with ``state``."""
    out = torch.empty_like(v)
    for rows, block in decay.blocks(q.shape[2]):
        q_b, k_b, v_b = q[:, :, rows], k[:, :, rows], v[:, :, rows]
        out[:, :, rows] = (q_b @ k_b.transpose(-1, -2) * block.within) @ v_b + q_b @ state * block.entering
        state = state * block.through + (k_b * block.leaving).transpose(-1, -2) @ v_b
    return out


def linear_attention_gradients(
    g: torch.Tensor, heads: Triple, decay: Decay, state: torch.Tensor, of_left: torch.Tensor
) -> Triple:
    """Return the gradients of queries, keys and values; ``of_left`` is that of the state after the range."""
    q, k, v = heads
    dq, dk, dv = (torch.empty_like(part) for part in heads)
    blocks = list(decay.blocks(q.shape[2]))
    for rows, block in blocks:
        g_b, k_b, v_b = g[:, :, rows], k[:, :, rows], v[:, :, rows]
        scores = g_b @ v_b.transpose(-1, -2) * block.within
        dq[:, :, rows] = scores @ k_b + g_b @ state.transpose(-1, -2) * block.entering
        state = state * block.through + (k_b * block.leaving).transpose(-1, -2) @ v_b
    for rows, block in reversed(blocks):
        g_b, q_b, k_b, v_b = g[:, :, rows], q[:, :, rows], k[:, :, rows], v[:, :, rows]
        scores = g_b @ v_b.transpose(-1, -2) * block.within
        weights = q_b @ k_b.transpose(-1, -2) * block.within
        dk[:, :, rows] = scores.transpose(-1, -2) @ q_b + v_b @ of_left.transpose(-1, -2) * block.leaving
        dv[:, :, rows] = weights.transpose(-1, -2) @ g_b + (k_b * block.leaving) @ of_left
        of_left = of_left * block.through + (q_b * block.entering).transpose(-1, -2) @ g_b
    return dq, dk, dv
