"""Rotary position embedding, applied in place to queries and keys before attention, and inverted on their gradients.

A rotation is orthogonal up to its factor, so the gradient rotates the other way with the same tables: nothing is saved.
"""

from dataclasses import dataclass

import torch

from meshwright.model.rotary import Rotary


@dataclass(frozen=True)
class Rotation:
    """Rotary tables for one sequence length: the rotated x is x·cos + (x with partners swapped)·sin.

    Both are (sequence, 1 or batch, 1, dim); ``sin`` includes the sign of each element.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    rotary: Rotary

    def apply(self, heads: torch.Tensor, *, backward: bool = False) -> None:
        """Rotate (sequence, batch, heads, head_dim) in place; ``backward`` rotates the other way."""
        rotated = heads[..., : self.rotary.dim]
        partners = self._swapped(rotated)
        rotated.mul_(self.cos).addcmul_(partners, self.sin, value=-1 if backward else 1)

    def at(self, positions: torch.Tensor) -> "Rotation":
        """Select rows of tables of all positions: (sequence, batch) positions."""
        return Rotation(self.cos[positions, 0], self.sin[positions, 0], self.rotary)

    def _swapped(self, x: torch.Tensor) -> torch.Tensor:
        """Return each element's partner in its place: the neighbour, or the element half a dim away."""
        if self.rotary.interleaved:
            return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return x.roll(self.rotary.dim // 2, -1)


def rotation(rotary: Rotary, length: int, positions: torch.Tensor, like: torch.Tensor) -> Rotation:
    """Compute the tables for some positions of sequences of ``length``; angles are computed in double precision.

    The tables have the dtype of ``like``.
    """
    frequencies = torch.tensor(rotary.frequencies(length), dtype=torch.float64, device=like.device)
    angles = torch.outer(positions.to(torch.float64), frequencies)
    cos, sin = angles.cos() * rotary.attention_factor, angles.sin() * rotary.attention_factor
    row = -1 if rotary.interleaved else 1  # interleaved pairs, or two halves
    tables = [
        torch.stack(pair, row).to(like).view(len(positions), 1, 1, -1) for pair in ((cos, cos), (-sin, sin))
    ]
    return Rotation(tables[0], tables[1], rotary)
