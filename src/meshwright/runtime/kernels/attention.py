"""Causal attention of the heads of one tp rank: rotation, scores, softmax, values.

Queries, keys and values are parts of one buffer, which the projection wrote and the rotation changes in place; they are
kept rotated, with one statistic per row. The output is kept by the next operator, which multiplies it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.operators import Attention
from meshwright.program.items import Collective
from meshwright.runtime.kernels.attention_core import (
    Scores,
    attend,
    attention_gradients,
    sink_gradients,
)
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.rotation import Rotation, rotation
from meshwright.runtime.visit import Visit

PARTS = ("queries", "keys", "values")


@dataclass(frozen=True)
class AttentionKernel:
    """softmax(QKᵀ)V for heads/tp query heads and kv_heads/tp key-value heads."""

    op: Attention
    setting: Setting

    @cached_property
    def widths(self) -> tuple[int, int, int]:
        """Widths of queries, keys and values on this rank."""
        return head_widths(self.op, self.setting.tp)

    def forward(self, x: torch.Tensor | tuple[torch.Tensor, ...], visit: Visit) -> torch.Tensor:
        """(sequence, batch, sum of widths) → (sequence, batch, heads · v_dim)."""
        return self._attend(self._turned(x), visit)

    def again(self, visit: Visit) -> torch.Tensor:
        """On what was kept, which is rotated already."""
        return self._attend(tuple(visit.kept[name] for name in PARTS), visit)

    def _attend(self, parts: tuple[torch.Tensor, ...], visit: Visit) -> torch.Tensor:
        q, k, v = map(by_heads, parts, (self.op.qk_dim, self.op.qk_dim, self.op.v_dim))
        out, statistic = attend(q, k, v, self._scores(q, visit))
        y = out.permute(2, 0, 1, 3).flatten(2)
        if visit.keep.inputs:
            visit.kept |= dict(zip(PARTS, parts, strict=True))
        if visit.keep.inner:
            visit.kept |= {"statistic": statistic, "output": y}
        return y

    def restore(self, x: torch.Tensor | tuple[torch.Tensor, ...], visit: Visit) -> None:
        """Rotate and keep the parts."""
        visit.kept |= dict(zip(PARTS, self._turned(x), strict=True))

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> Value:
        """Gradients of queries, keys and values next to each other, as the projection wrote them."""
        parts = [visit.kept.pop(name) for name in PARTS]
        q, k, v = map(by_heads, parts, (self.op.qk_dim, self.op.qk_dim, self.op.v_dim))
        out = by_heads(visit.kept.pop("output"), self.op.v_dim)
        statistic = visit.kept.pop("statistic")
        of, of_out = self._scores(q, visit), by_heads(g, self.op.v_dim)
        if of.sinks is not None:
            found = sink_gradients(of_out, out, statistic, of.sinks)
            visit.unit(self.sinks).gradient_of(self.sinks).add_(found)
        return self._fused(attention_gradients(of_out, q, k, v, out, statistic, of))

    def _fused(self, gradients: Sequence[torch.Tensor]) -> Value:
        """Gradients of the three by head as that of the projection's result."""
        batch, _, length, _ = gradients[0].shape
        fused = gradients[0].new_empty((length, batch, sum(self.widths)))
        for part, gradient in zip(fused.split(self.widths, -1), gradients, strict=True):
            by_heads(part, gradient.shape[-1]).copy_(gradient)
        self._grow(fused[..., : self.widths[0]])
        self._rotate([fused[..., : -self.widths[-1]]], backward=True)
        return fused

    def weight_gradient(self, visit: Visit) -> None:
        """There are no matrices; sinks are done with the input's gradient."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """Rings of context parallelism are refused before a run."""
        raise AssertionError(item)
        yield

    def _turned(self, x: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of ``x``, the first two rotated in place, at once where they share a buffer."""
        if isinstance(x, torch.Tensor):
            parts = tuple(x.split(self.widths, -1))
            self._rotate([x[..., : -self.widths[-1]]])
        else:
            parts = x
            self._rotate(parts[:2])
        self._grow(parts[0])
        return parts

    def _rotate(self, parts: Sequence[torch.Tensor], *, backward: bool = False) -> None:
        turn = self._rotation(parts[0])
        if turn is not None:
            for part in parts:
                turn.apply(part.unflatten(-1, (-1, self.op.qk_dim)), backward=backward)

    def _rotation(self, like: torch.Tensor) -> Rotation | None:
        """How positions turn the layer's heads, of as many positions as ``like``."""
        rotary = self.setting.numerics.rotary[self.setting.decoder_layer]
        if rotary is None:
            return None
        return self.setting.tables.get((rotary, len(like)), lambda: rotation(rotary, len(like), like))

    def _grow(self, queries: torch.Tensor) -> None:
        """What some models multiply far queries with; it commutes with their rotation, and is its own gradient."""
        growth = self.setting.numerics.query_growth
        if growth is None:
            return
        positions = torch.arange(len(queries), dtype=torch.float64, device=queries.device)
        factor = 1 + growth.beta * torch.log1p(torch.floor(positions / growth.positions))
        queries *= factor.to(queries)[:, None, None]

    @property
    def sinks(self) -> str:
        """The full name of the heads' sinks, where there are any."""
        return self.setting.named(self.op.parameters[0]) if self.op.parameters else ""

    def _scores(self, q: torch.Tensor, visit: Visit) -> Scores:
        numerics, layer = self.setting.numerics, self.setting.decoder_layer
        key = (self.op.window, q.shape[-2], self.setting.tp_rank)
        mask = self.setting.tables.get(key, lambda: added_mask(q, self.op, self.setting))
        sinks = visit.unit(self.sinks).view(self.sinks) if self.sinks else None
        return Scores(numerics.attention_scales[layer], numerics.attention_soft_cap, mask, sinks)


def head_widths(op: Attention, tp: int) -> tuple[int, int, int]:
    """Widths of queries, keys and values that one tp rank has."""
    heads, kv_heads = op.heads // tp, op.kv_heads // tp
    return heads * op.qk_dim, kv_heads * op.qk_dim, kv_heads * op.v_dim


def by_heads(part: torch.Tensor, width: int) -> torch.Tensor:
    """(sequence, batch, heads · width) as (batch, heads, sequence, width), the same memory."""
    return part.unflatten(-1, (-1, width)).permute(1, 2, 0, 3)


def added_mask(q: torch.Tensor, op: Attention, setting: Setting) -> torch.Tensor | None:
    """What is added to the scores; None where plain causality does."""
    length, window, slopes = q.shape[-2], op.window, setting.numerics.alibi_slopes
    if not slopes and (window is None or window >= length):
        return None
    place = torch.arange(length, device=q.device)
    behind = place[:, None] - place[None]
    hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
    mask = torch.zeros((length, length), dtype=q.dtype, device=q.device)
    if slopes:
        own = len(slopes) // setting.tp
        mine = torch.tensor(slopes, dtype=q.dtype, device=q.device)[setting.tp_rank * own :][:own]
        mask = (-mine[:, None, None] * behind.to(q))[None]
    return mask.masked_fill(hidden, float("-inf"))
