"""Attention between some queries of a sequence and some of its keys, tile by tile, put together by their statistics.

A tile sees everything, a triangle or what a window leaves (``program/context.py``), so most need no mask. Parts of a
row's softmax are put together by the logarithms of their sums (Milakov and Gimelshein, arXiv 1805.02867); gradients of
a tile need the statistic and the output of the whole row alone.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from meshwright.model.operators import Attention
from meshwright.program.context import Stretches, Tile, tiles
from meshwright.runtime.kernels.attention_core import Scores, Triple, attend, attention_gradients
from meshwright.runtime.kernels.kernel import Setting


@dataclass
class Partial:
    """The output of rows so far, (batch, heads, sequence, v_dim), and the statistic of what they have seen."""

    out: torch.Tensor | None = None
    statistic: torch.Tensor | None = None

    def add(self, rows: slice, all_rows: int, out: torch.Tensor, statistic: torch.Tensor) -> None:
        """What some rows have seen besides."""
        if self.out is None and rows == slice(0, all_rows):
            self.out, self.statistic = out, statistic
            return
        if self.out is None or self.statistic is None:
            wide = statistic.dtype
            self.out = out.new_zeros((*out.shape[:2], all_rows, out.shape[-1]), dtype=wide)
            self.statistic = statistic.new_full((*out.shape[:2], all_rows), float("-inf"))
        elif self.out.dtype != self.statistic.dtype:
            self.out = self.out.to(self.statistic.dtype)
        own, seen = self.out[..., rows, :], self.statistic[..., rows]
        together = torch.logaddexp(seen, statistic)
        own.mul_(torch.exp(seen - together)[..., None])
        own.add_(out * torch.exp(statistic - together)[..., None])
        seen.copy_(together)

    def sent(self, q: torch.Tensor, v: torch.Tensor, like: "Partial") -> tuple[torch.Tensor, torch.Tensor]:
        """Output and statistic as they travel; rows that have seen nothing have −∞."""
        assert like.statistic is not None
        if self.out is None or self.statistic is None:
            size = (*q.shape[:-1], v.shape[-1])
            return q.new_zeros(size), like.statistic.new_full(q.shape[:-1], float("-inf"))
        return self.out.to(q).contiguous(), self.statistic.contiguous()

    def complete(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The output in the dtype of ``like``, and the statistic."""
        assert self.out is not None
        assert self.statistic is not None
        return self.out.to(like), self.statistic


class Rows(NamedTuple):
    """The gradient of rows' output, that output, and the statistic of all that they have seen."""

    gradient: torch.Tensor
    out: torch.Tensor
    statistic: torch.Tensor

    def cut(self, rows: slice) -> "Rows":
        """Some of the rows."""
        return Rows(self.gradient[..., rows, :], self.out[..., rows, :], self.statistic[..., rows])


@dataclass(frozen=True)
class Tiled:
    """The attention of one layer on one rank, between any two parts of a sequence."""

    op: Attention
    setting: Setting
    _tiles: dict[tuple[Stretches, Stretches], tuple[Tile, ...]] = field(default_factory=dict)

    def attend(self, made: Partial, heads: Triple, queries: Stretches, keys: Stretches) -> None:
        """Add what ``queries`` see of ``keys``; heads are q, k and v, (batch, heads, sequence, width)."""
        for tile in self.between(queries, keys):
            rows, q = slice(*tile.rows), heads[0]
            out, statistic = attend(*_cut(heads, tile), self._scores(tile, q))
            made.add(rows, q.shape[-2], out, statistic)

    def add_gradients(
        self, to: Triple, heads: Triple, rows: Rows, queries: Stretches, keys: Stretches
    ) -> None:
        """Add the gradients of what ``queries`` see of ``keys`` to those of q, k and v."""
        for tile in self.between(queries, keys):
            found = self._of_tile(tile, heads, rows)
            for total, part in zip(_cut(to, tile), found, strict=True):
                total += part

    def gradients(self, heads: Triple, rows: Rows, stretches: Stretches) -> Triple:
        """The gradients of a sequence that is all here."""
        (tile,) = self.between(stretches, stretches)
        return self._of_tile(tile, heads, rows)

    def _of_tile(self, tile: Tile, heads: Triple, rows: Rows) -> Triple:
        g, out, statistic = rows.cut(slice(*tile.rows))
        return attention_gradients(g, *_cut(heads, tile), out, statistic, self._scores(tile, heads[0]))

    def between(self, queries: Stretches, keys: Stretches) -> tuple[Tile, ...]:
        """The tiles in which something is seen."""
        if (queries, keys) not in self._tiles:
            self._tiles[queries, keys] = tiles(queries, keys, self._window)
        return self._tiles[queries, keys]

    @cached_property
    def _window(self) -> int | None:
        """The window; slopes want to know how far apart all rows and columns are, as windows do."""
        if self.op.window is None and self.setting.numerics.alibi_slopes:
            return int(self.setting.shape.seq_len)
        return self.op.window

    def scores_between(self, queries: Stretches, keys: Stretches, q: torch.Tensor) -> Scores:
        """What is done to all scores of two parts of a sequence, which hides what is not seen."""
        at = [torch.cat([torch.arange(*one) for one in part]).to(q.device) for part in (queries, keys)]
        return self._with(self._hiding(at[0][:, None] - at[1][None], q))

    def _scores(self, tile: Tile, q: torch.Tensor) -> Scores:
        sizes = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
        mask = None
        if self.setting.numerics.alibi_slopes or tile.sees == "window":
            key = ("mask", sizes, tile.sees, tile.behind, self._window, self.setting.first_head)
            mask = self.setting.tables.get(key, lambda: self._mask(tile, sizes, q))
        return self._with(mask, causal=tile.sees == "causal")

    def _with(self, mask: torch.Tensor | None, *, causal: bool = False) -> Scores:
        numerics = self.setting.numerics
        scale = numerics.attention_scales[self.setting.decoder_layer]
        whole = self.setting.shape.ring == 1 and not self.op.parameters  # parameters of attention are sinks
        return Scores(scale, numerics.attention_soft_cap, mask, causal, whole)

    def _mask(self, tile: Tile, sizes: tuple[int, int], q: torch.Tensor) -> torch.Tensor:
        """What is added to the scores of a tile."""
        place = [torch.arange(size, device=q.device) for size in sizes]
        return self._hiding(place[0][:, None] + tile.behind - place[1][None], q)

    def _hiding(self, behind: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        """What is added to scores, by how many positions a row lies behind a column."""
        mask = torch.zeros(behind.shape, dtype=q.dtype, device=q.device)
        slopes = self.setting.numerics.alibi_slopes
        if slopes:
            first = self.setting.first_head
            own = torch.tensor(slopes, dtype=q.dtype, device=q.device)[first : first + q.shape[1]]
            mask = (-own[:, None, None] * behind.to(q))[None]
        window = self._window
        hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
        return mask.masked_fill(hidden, float("-inf"))


def _cut(heads: Triple, tile: Tile) -> Triple:
    """The queries, keys and values of a tile."""
    q, k, v = heads
    rows, columns = slice(*tile.rows), slice(*tile.columns)
    return q[..., rows, :], k[..., columns, :], v[..., columns, :]
