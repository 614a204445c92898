"""Queries, keys and values as the projections write them: cut apart, turned by their positions, and back again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.operators import Attention
from meshwright.runtime.kernels.kernel import Setting, Value
from meshwright.runtime.kernels.rotation import Rotation, rotation
from meshwright.runtime.visit import MicroBatch


@dataclass(frozen=True)
class TurnedHeads:
    """The heads of one layer on one rank, side by side in one buffer that the projection wrote."""

    op: Attention
    setting: Setting

    @cached_property
    def widths(self) -> tuple[int, int, int]:
        """Widths of queries, keys and values on this rank."""
        return head_widths(self.op, self.setting.tp)

    def _turned(self, x: Value, batch: MicroBatch) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of ``x``, the first two rotated in place, at once where they share a buffer."""
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
        """How positions turn the layer's heads; where they begin again with documents, their rows of one table."""
        rotary = self.setting.numerics.rotary[self.setting.decoder_layer]
        if rotary is None:
            return None
        length, tables = int(self.setting.shape.seq_len), self.setting.tables
        if batch.packing is None:
            positions = self.setting.positions
            return tables.get(rotary, lambda: rotation(rotary, length, positions, like))
        every = torch.arange(length, device=like.device)
        whole: Rotation = tables.get(("whole", rotary), lambda: rotation(rotary, length, every, like))
        return whole.at(batch.positions(self.setting.positions))

    def _grow(self, queries: torch.Tensor, batch: MicroBatch) -> None:
        """What some models multiply far queries with; it commutes with their rotation, and is its own gradient."""
        growth = self.setting.numerics.query_growth
        if growth is None:
            return
        positions = batch.positions(self.setting.positions).to(torch.float64)
        factor = 1 + growth.beta * torch.log1p(torch.floor(positions / growth.positions))
        queries *= factor.to(queries)[..., None]

    def _fused(self, gradients: Sequence[torch.Tensor], batch: MicroBatch) -> Value:
        """Gradients of the three by head as that of the projection's result."""
        sequences, _, length, _ = gradients[0].shape
        fused = gradients[0].new_empty((length, sequences, sum(self.widths)))
        for part, gradient in zip(fused.split(self.widths, -1), gradients, strict=True):
            by_heads(part, gradient.shape[-1]).copy_(gradient)
        self._grow(fused[..., : self.widths[0]], batch)
        self._rotate([fused[..., : -self.widths[-1]]], batch, backward=True)
        return fused


def head_widths(op: Attention, tp: int) -> tuple[int, int, int]:
    """Widths of queries, keys and values that one tp rank has."""
    heads, kv_heads = op.heads // tp, op.kv_heads // tp
    return heads * op.qk_dim, kv_heads * op.qk_dim, kv_heads * op.v_dim


def by_heads(part: torch.Tensor, width: int) -> torch.Tensor:
    """(sequence, batch, heads · width) as (batch, heads, sequence, width), the same memory."""
    return part.unflatten(-1, (-1, width)).permute(1, 2, 0, 3)
