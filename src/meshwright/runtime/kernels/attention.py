"""Causal attention of the heads of one tp rank: rotation, scores, softmax, values.

Queries, keys and values are parts of one buffer, which the projection wrote and the rotation changes in place; they are
kept rotated, with one statistic per row. The output is kept by the next operator, which multiplies it.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.operators import Attention
from meshwright.program.items import Collective
from meshwright.runtime.kernels.attention_core import Scores, attend, attention_gradients
from meshwright.runtime.kernels.kernel import Exchange, Setting
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
        parts = tuple(x.split(self.widths, -1) if isinstance(x, torch.Tensor) else x)
        self._turn(parts[0], parts[1])
        return self._attend(parts, visit)

    def again(self, visit: Visit) -> torch.Tensor:
        """On what was kept, which is rotated already."""
        return self._attend(tuple(visit.kept[name] for name in PARTS), visit)

    def _attend(self, parts: tuple[torch.Tensor, ...], visit: Visit) -> torch.Tensor:
        q, k, v = map(self._heads, parts, (self.op.qk_dim, self.op.qk_dim, self.op.v_dim))
        out, statistic = attend(q, k, v, self._scores(q))
        y = out.permute(2, 0, 1, 3).flatten(2)
        if visit.keep.inputs:
            visit.kept |= dict(zip(PARTS, parts, strict=True))
        if visit.keep.inner:
            visit.kept |= {"statistic": statistic, "output": y}
        return y

    def restore(self, x: torch.Tensor | tuple[torch.Tensor, ...], visit: Visit) -> None:
        """Rotate and keep the parts."""
        parts = tuple(x.split(self.widths, -1) if isinstance(x, torch.Tensor) else x)
        self._turn(parts[0], parts[1])
        visit.kept |= dict(zip(PARTS, parts, strict=True))

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Gradients of queries, keys and values next to each other, as the projection wrote them."""
        parts = [visit.kept.pop(name) for name in PARTS]
        q, k, v = map(self._heads, parts, (self.op.qk_dim, self.op.qk_dim, self.op.v_dim))
        out = self._heads(visit.kept.pop("output"), self.op.v_dim)
        statistic = visit.kept.pop("statistic")
        of = self._scores(q)
        gradients = attention_gradients(self._heads(g, self.op.v_dim), q, k, v, out, statistic, of)
        fused = g.new_empty((*g.shape[:2], sum(self.widths)))
        for part, gradient in zip(fused.split(self.widths, -1), gradients, strict=True):
            part.copy_(gradient.permute(2, 0, 1, 3).flatten(2))
        self._turn(*fused.split(self.widths, -1)[:2], backward=True)
        return fused

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """Rings of context parallelism are refused before a run."""
        raise AssertionError(item)
        yield

    def _heads(self, part: torch.Tensor, width: int) -> torch.Tensor:
        """(sequence, batch, heads · width) as (batch, heads, sequence, width), the same memory."""
        return part.unflatten(-1, (-1, width)).permute(1, 2, 0, 3)

    def _turn(self, queries: torch.Tensor, keys: torch.Tensor, *, backward: bool = False) -> None:
        numerics, layer = self.setting.numerics, self.setting.layer
        assert layer is not None
        rotary, growth = numerics.rotary[layer], numerics.query_growth
        if growth is not None and backward:
            queries *= self._growth(queries)
        if rotary is not None:
            turn = self._rotation(queries)
            for part in (queries, keys):
                turn.apply(part.unflatten(-1, (-1, self.op.qk_dim)), backward=backward)
        if growth is not None and not backward:
            queries *= self._growth(queries)

    def _rotation(self, like: torch.Tensor) -> Rotation:
        rotary = self.setting.numerics.rotary[self.setting.layer or 0]
        assert rotary is not None
        return self.setting.tables.get((rotary, len(like)), lambda: rotation(rotary, len(like), like))

    def _growth(self, queries: torch.Tensor) -> torch.Tensor:
        growth = self.setting.numerics.query_growth
        assert growth is not None
        positions = torch.arange(len(queries), dtype=torch.float64, device=queries.device)
        factor = 1 + growth.beta * torch.log1p(torch.floor(positions / growth.positions))
        return factor.to(queries)[:, None, None]

    def _scores(self, q: torch.Tensor) -> Scores:
        numerics, layer = self.setting.numerics, self.setting.layer
        assert layer is not None
        key = (self.op.window, q.shape[-2], self.setting.tp_rank)
        mask = self.setting.tables.get(key, lambda: self._mask(q))
        return Scores(numerics.attention_scales[layer], numerics.attention_soft_cap, mask)

    def _mask(self, q: torch.Tensor) -> torch.Tensor | None:
        """What is added to the scores; None where plain causality does."""
        length, window, slopes = q.shape[-2], self.op.window, self.setting.numerics.alibi_slopes
        if not slopes and (window is None or window >= length):
            return None
        place = torch.arange(length, device=q.device)
        behind = place[:, None] - place[None]
        hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
        mask = torch.zeros((length, length), dtype=q.dtype, device=q.device)
        if slopes:
            own = len(slopes) // self.setting.tp
            mine = torch.tensor(slopes, dtype=q.dtype, device=q.device)[self.setting.tp_rank * own :][:own]
            mask = (-mine[:, None, None] * behind.to(q))[None]
        return mask.masked_fill(hidden, float("-inf"))


def head_widths(op: Attention, tp: int) -> tuple[int, int, int]:
    """Widths of queries, keys and values that one tp rank has."""
    heads, kv_heads = op.heads // tp, op.kv_heads // tp
    return heads * op.qk_dim, kv_heads * op.qk_dim, kv_heads * op.v_dim
