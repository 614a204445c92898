"""Split the projection's result into queries, keys and values and rotate them; the inverse for gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.encoder import VisionEncoder
from meshwright.model.operators.operator_types import Attention
from meshwright.model.rotary import Rotary
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.kernels.kernel import Setting, Value


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
        turned = heads[..., : self.rotary.dim]
        partners = self._swapped(turned)
        turned.mul_(self.cos).addcmul_(partners, self.sin, value=-1 if backward else 1)

    def at(self, positions: torch.Tensor) -> "Rotation":
        """Select rows of tables of all positions: (sequence, batch) positions."""
        return Rotation(self.cos[positions, 0], self.sin[positions, 0], self.rotary)

    def _swapped(self, x: torch.Tensor) -> torch.Tensor:
        """Return each element's partner in its place: the neighbour, or the element half a dim away."""
        if self.rotary.interleaved:
            return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
        return x.roll(self.rotary.dim // 2, -1)


@dataclass(frozen=True)
class RotatedHeads:
    """The heads of one layer on one rank, adjacent in one buffer that the projection wrote."""

    op: Attention
    setting: Setting

    @cached_property
    def widths(self) -> tuple[int, int, int]:
        """Widths of queries, keys and values on this rank."""
        return head_widths(self.op, self.setting.tp)

    def _rotated_heads(self, x: Value, batch: MicroBatch) -> tuple[torch.Tensor, ...]:
        """Return queries, keys and values of ``x``; queries and keys are rotated in place."""
        if isinstance(x, torch.Tensor):
            parts = tuple(x.split(self.widths, -1))
            self._rotate([x[..., : -self.widths[-1]]], batch)
        else:
            parts = x
            self._rotate(parts[:2], batch)
        self._grow(parts[0], batch)
        return parts

    def _rotate(self, parts: Sequence[torch.Tensor], batch: MicroBatch, *, backward: bool = False) -> None:
        turn = self._rotation(parts[0], batch)
        if turn is not None:
            for part in parts:
                turn.apply(part.unflatten(-1, (-1, self.op.qk_dim)), backward=backward)

    def _rotation(self, like: torch.Tensor, batch: MicroBatch) -> Rotation | None:
        """Return the layer's rotary tables; None without rotation. Positions restart at each document."""
        rotary = self.setting.numerics.rotary[self.setting.decoder_layer]
        if rotary is None:
            return None
        length, tables = int(self.setting.shape.seq_len), self.setting.tables
        if batch.packing is None:
            positions = self._turning
            return tables.get(rotary, lambda: rotation(rotary, length, positions, like))
        every = torch.arange(length, device=like.device)
        whole: Rotation = tables.get(("whole", rotary), lambda: rotation(rotary, length, every, like))
        return whole.at(batch.positions(self.setting.positions))

    @property
    def _turning(self) -> torch.Tensor:
        """The positions that this rank's queries and keys turn with: for images, one for each pair of a head."""
        positions, images = self.setting.positions, self.setting.shape.encoder.images
        sections, encoder = self.setting.numerics.rotary_sections, self.setting.architecture.encoder
        if images is None or not sections:
            return positions
        assert isinstance(encoder, VisionEncoder)
        every = torch.from_numpy(images.positions(encoder.merge, int(self.setting.shape.seq_len)))
        of_axes = every.to(positions.device)[:, positions]
        return of_axes.repeat_interleave(torch.tensor(sections, device=positions.device), 0).t()

    def _grow(self, queries: torch.Tensor, batch: MicroBatch) -> None:
        """Scale queries with their position, in place, for models that do so. The scaling commutes with rotation."""
        growth = self.setting.numerics.query_growth
        if growth is None:
            return
        positions = batch.positions(self.setting.positions).to(torch.float64)
        factor = 1 + growth.beta * torch.log1p(torch.floor(positions / growth.positions))
        queries *= factor.to(queries)[..., None]

    def _fused(self, gradients: Sequence[torch.Tensor], batch: MicroBatch) -> Value:
        """Combine the gradients of queries, keys and values by head into that of the projection's result."""
        sequences, _, length, _ = gradients[0].shape
        fused = gradients[0].new_empty((length, sequences, sum(self.widths)))
        for part, gradient in zip(fused.split(self.widths, -1), gradients, strict=True):
            by_heads(part, gradient.shape[-1]).copy_(gradient)
        self._grow(fused[..., : self.widths[0]], batch)
        self._rotate([fused[..., : -self.widths[-1]]], batch, backward=True)
        return fused


def head_widths(op: Attention, tp: int) -> tuple[int, int, int]:
    """Return the widths of queries, keys and values on one tp rank."""
    heads, kv_heads = op.heads // tp, op.kv_heads // tp
    return heads * op.qk_dim, kv_heads * op.qk_dim, kv_heads * op.v_dim


def by_heads(part: torch.Tensor, width: int) -> torch.Tensor:
    """Return (sequence, batch, heads · width) as a view (batch, heads, sequence, width)."""
    return part.unflatten(-1, (-1, width)).permute(1, 2, 0, 3)


def rotation(rotary: Rotary, length: int, positions: torch.Tensor, like: torch.Tensor) -> Rotation:
    """Compute the tables for some positions of sequences of ``length``; angles are computed in double precision.

    ``positions`` are (sequence), or (sequence, pairs) where pairs turn with different positions. The tables have the
    dtype of ``like``.
    """
    frequencies = torch.tensor(rotary.frequencies(length), dtype=torch.float64, device=like.device)
    of_pairs = positions[:, None] if positions.dim() == 1 else positions
    return turned_by(of_pairs.to(torch.float64) * frequencies, rotary, like)


def turned_by(angles: torch.Tensor, rotary: Rotary, like: torch.Tensor) -> Rotation:
    """Return the tables for the angles of each position and pair, (sequence, pairs)."""
    cos, sin = angles.cos() * rotary.attention_factor, angles.sin() * rotary.attention_factor
    row = -1 if rotary.interleaved else 1  # interleaved pairs, or two halves
    tables = [
        torch.stack(pair, row).to(like).view(len(angles), 1, 1, -1) for pair in ((cos, cos), (-sin, sin))
    ]
    return Rotation(tables[0], tables[1], rotary)
