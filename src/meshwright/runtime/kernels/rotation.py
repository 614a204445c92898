"""Rotary positions, applied in place to queries and keys before attention, and backwards to their gradients.

A rotation is orthogonal up to its factor, so the gradient turns the other way with the same tables: nothing is kept.
"""

from dataclasses import dataclass

import torch

from meshwright.model.rotary import Rotary


@dataclass(frozen=True)
class Rotation:
    """Tables for one sequence length: ``cos`` and ``sin`` are (sequence, 1, 1, pairs)."""

    cos: torch.Tensor
    sin: torch.Tensor
    rotary: Rotary

    def apply(self, heads: torch.Tensor, *, backward: bool = False) -> None:
        """Turn (sequence, batch, heads, head_dim) in place."""
        first, second = self._pairs(heads)
        sin = -self.sin if backward else self.sin
        turned = first * self.cos - second * sin
        second.copy_(second * self.cos + first * sin)
        first.copy_(turned)

    def _pairs(self, heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = heads[..., : self.rotary.dim]
        if self.rotary.interleaved:
            return turned[..., 0::2], turned[..., 1::2]
        return turned.chunk(2, -1)  # type: ignore[return-value]


def rotation(rotary: Rotary, positions: int, like: torch.Tensor) -> Rotation:
    """The tables for ``positions`` positions in the dtype of ``like``; angles are computed in double precision."""
    frequencies = torch.tensor(rotary.frequencies(positions), dtype=torch.float64, device=like.device)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64, device=like.device), frequencies)
    factor = rotary.attention_factor
    shape = (positions, 1, 1, -1)
    return Rotation(
        (angles.cos() * factor).to(like).view(shape), (angles.sin() * factor).to(like).view(shape), rotary
    )
