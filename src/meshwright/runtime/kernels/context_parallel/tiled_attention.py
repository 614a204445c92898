"""Attention between some queries and some keys of a sequence, tile by tile, merged by the row statistics.

A tile is full, causal, or cut by a window (``program/context_parallel/positions_and_masks.py``), so most tiles need no
mask. Partial softmaxes of a row are merged by the logarithms of their sums (Milakov and Gimelshein, arXiv 1805.02867);
gradients of a tile need only the statistic and the output of the whole row. Each packed sequence has its own tiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from meshwright.model.operators.operator_types import Attention
from meshwright.program.context_parallel.positions_and_masks import Stretches, Tile, tiles
from meshwright.runtime.batch.document_packing import Packing, Seen
from meshwright.runtime.kernels.attention.scaled_dot_product import (
    Scores,
    Triple,
    attend,
    attention_gradients,
)
from meshwright.runtime.kernels.kernel import Setting

Place = tuple[slice, slice]
"""A slice of sequences, and a slice of rows."""


def everywhere(q: torch.Tensor) -> Place:
    """Return the place of all rows of all sequences."""
    return slice(0, q.shape[0]), slice(0, q.shape[-2])


@dataclass
class Partial:
    """The partial output of rows, (batch, heads, sequence, v_dim), and the statistic of the keys attended to so far."""

    out: torch.Tensor | None = None
    statistic: torch.Tensor | None = None

    def add(self, place: Place, q: torch.Tensor, out: torch.Tensor, statistic: torch.Tensor) -> None:
        """Merge in the output of some rows of ``q``; with an empty statistic it is these rows' complete output."""
        if self.out is None and place == everywhere(q):
            self.out, self.statistic = out, statistic
            return
        known = bool(statistic.numel())
        if self.out is None or self.statistic is None:
            self.out = q.new_zeros((*q.shape[:-1], out.shape[-1]), dtype=statistic.dtype)
            self.statistic = statistic.new_full(q.shape[:-1], float("-inf")) if known else statistic
        elif self.out.dtype != self.statistic.dtype:
            self.out = self.out.to(self.statistic.dtype)
        sequences, rows = place
        own = self.out[sequences, :, rows]
        if not known:
            own.copy_(out)
            return
        seen = self.statistic[sequences, :, rows]
        together = torch.logaddexp(seen, statistic)
        own.mul_(torch.exp(seen - together)[..., None])
        own.add_(out * torch.exp(statistic - together)[..., None])
        seen.copy_(together)

    def sent(self, q: torch.Tensor, v: torch.Tensor, like: "Partial") -> tuple[torch.Tensor, torch.Tensor]:
        """Return output and statistic ready to send; rows without keys have statistic −∞."""
        assert like.statistic is not None
        if self.out is None or self.statistic is None:
            size = (*q.shape[:-1], v.shape[-1])
            return q.new_zeros(size), like.statistic.new_full(q.shape[:-1], float("-inf"))
        return self.out.to(q).contiguous(), self.statistic.contiguous()

    def complete(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output in the dtype of ``like``, and the statistic."""
        assert self.out is not None
        assert self.statistic is not None
        return self.out.to(like), self.statistic


class Rows(NamedTuple):
    """The gradient of rows' output, that output, and the statistic over all their keys."""

    gradient: torch.Tensor
    out: torch.Tensor
    statistic: torch.Tensor

    def cut(self, place: Place) -> "Rows":
        """Return some of the rows."""
        sequences, rows = place
        statistic = self.statistic[sequences, :, rows] if self.statistic.numel() else self.statistic
        return Rows(self.gradient[sequences, :, rows], self.out[sequences, :, rows], statistic)


@dataclass(frozen=True)
class TiledAttention:
    """The attention of one layer on one rank, between any two parts of a sequence; ``packing``: within documents."""

    op: Attention
    setting: Setting
    packing: Packing | None = None
    _tiles: dict[tuple[Stretches, Stretches], tuple[Tile, ...]] = field(default_factory=dict)

    def attend(self, made: Partial, heads: Triple, queries: Stretches, keys: Stretches) -> None:
        """Add the attention of ``queries`` to ``keys``; heads are q, k and v, (batch, heads, sequence, width)."""
        q = heads[0]
        for sequences, tile in self._between(queries, keys, len(q)):
            out, statistic = attend(*_cut(heads, sequences, tile), self._scores(tile, q))
            made.add((sequences, slice(*tile.rows)), q, out, statistic)

    def add_gradients(
        self, to: Triple, heads: Triple, rows: Rows, queries: Stretches, keys: Stretches
    ) -> None:
        """Add the gradients of the attention of ``queries`` to ``keys`` to those of q, k and v."""
        for sequences, tile in self._between(queries, keys, len(heads[0])):
            found = self._of_tile(sequences, tile, heads, rows)
            for total, part in zip(_cut(to, sequences, tile), found, strict=True):
                total += part

    def gradients(self, heads: Triple, rows: Rows, stretches: Stretches) -> Triple:
        """Return the gradients of q, k and v when the rank holds whole sequences."""
        seen = self._between(stretches, stretches, len(heads[0]))
        if len(seen) == 1:
            return self._of_tile(*seen[0], heads, rows)
        q, k, v = heads
        to = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        self.add_gradients(to, heads, rows, stretches, stretches)
        return to

    def _of_tile(self, sequences: slice, tile: Tile, heads: Triple, rows: Rows) -> Triple:
        g, out, statistic = rows.cut((sequences, slice(*tile.rows)))
        scores = self._scores(tile, heads[0])
        return attention_gradients(g, *_cut(heads, sequences, tile), out, statistic, scores)

    def _between(self, queries: Stretches, keys: Stretches, sequences: int) -> Sequence[Seen]:
        """Return the tiles that need computing; all sequences share them unless they are packed."""
        if self.packing is not None:
            return self.packing.between(queries, keys, self._window)
        if (queries, keys) not in self._tiles:
            self._tiles[queries, keys] = tiles(queries, keys, self._window)
        return [(slice(0, sequences), tile) for tile in self._tiles[queries, keys]]

    @cached_property
    def _window(self) -> int | None:
        """The window; the whole length with ALiBi slopes, which need a mask of distances as windows do."""
        if self.op.window is None and self.setting.numerics.alibi_slopes:
            return int(self.setting.shape.seq_len)
        return self.op.window

    def scores_between(self, queries: Stretches, keys: Stretches, q: torch.Tensor) -> Scores:
        """Return scale, cap and full mask of the scores between two parts of a sequence."""
        rows, columns = (
            torch.cat([torch.arange(*one) for one in part]).to(q.device) for part in (queries, keys)
        )
        mask = self._hiding(rows[:, None] - columns[None], q)
        if self.packing is not None:
            foreign = self.packing.foreign(rows, columns)[:, None]
            mask = torch.where(foreign, float("-inf"), mask)
        return self._with(mask)

    def _scores(self, tile: Tile, q: torch.Tensor) -> Scores:
        sizes = tile.rows[1] - tile.rows[0], tile.columns[1] - tile.columns[0]
        mask = None
        if self.setting.numerics.alibi_slopes or tile.sees == "window":
            mask = self._mask(tile, sizes, q) if self.packing else self._kept_mask(tile, sizes, q)
        return self._with(mask, causal=tile.sees == "causal")

    def _kept_mask(self, tile: Tile, sizes: tuple[int, int], q: torch.Tensor) -> torch.Tensor:
        """Return a cached mask: sequences that are not packed have few tiles, always the same."""
        key = ("mask", sizes, tile.sees, tile.behind, self._window, self.setting.first_head)
        return self.setting.tables.get(key, lambda: self._mask(tile, sizes, q))

    def _with(self, mask: torch.Tensor | None, *, causal: bool = False) -> Scores:
        numerics = self.setting.numerics
        scale = numerics.attention_scales[self.setting.decoder_layer]
        whole = self.setting.shape.ring == 1 and not self.op.parameters  # the only parameters are sinks
        return Scores(scale, numerics.attention_soft_cap, mask, causal, whole)

    def _mask(self, tile: Tile, sizes: tuple[int, int], q: torch.Tensor) -> torch.Tensor:
        """Return the mask that is added to the scores of a tile."""
        place = [torch.arange(size, device=q.device) for size in sizes]
        return self._hiding(place[0][:, None] + tile.behind - place[1][None], q)

    def _hiding(self, behind: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        """Return the mask by each row's distance ``behind`` its column: −∞ if hidden, else the ALiBi bias."""
        mask = torch.zeros(behind.shape, dtype=q.dtype, device=q.device)
        slopes = self.setting.numerics.alibi_slopes
        if slopes:
            first = self.setting.first_head
            own = torch.tensor(slopes, dtype=q.dtype, device=q.device)[first : first + q.shape[1]]
            mask = (-own[:, None, None] * behind.to(q))[None]
        window = self._window
        hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
        return mask.masked_fill(hidden, float("-inf"))


def _cut(heads: Triple, sequences: slice, tile: Tile) -> Triple:
    """Return the queries, keys and values of a tile."""
    q, k, v = heads
    rows, columns = slice(*tile.rows), slice(*tile.columns)
    return q[sequences, :, rows], k[sequences, :, columns], v[sequences, :, columns]
