"""Attention of a vision tower: patches attend within their image or within a window of it, rotated by row and column.

The patches of an image, and of a window, follow one another, so attention is that of many short texts. Consecutive
spans of one length are attended to together. A head's first half of angles turns with the row of a patch, the second
with its column (Qwen2-VL, arXiv 2409.12191, section 2.1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import torch

from meshwright.model.encoder import VisionEncoder
from meshwright.model.rotary import Rotary
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.attention.rotated_heads import Rotation, by_heads, head_widths, turned_by
from meshwright.runtime.kernels.attention.scaled_dot_product import (
    Scores,
    attend,
    attention_gradients,
)
from meshwright.runtime.kernels.encoder.unsharded_attention import UnshardedAttention
from meshwright.runtime.kernels.kernel import Value


@dataclass(frozen=True)
class ImageAttentionKernel(UnshardedAttention):
    """softmax(QKᵀ)·V within images or windows."""

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Attend: (patches, batch, sum of widths) → (patches, batch, heads · v_dim)."""
        parts = self._rotated(x)
        if visit.keep.inputs:
            self.save(parts, visit)
        return self._attend(parts, visit)

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Recompute the output from the saved parts."""
        return self._attend(self.saved(visit), visit)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Rotate and save the recomputed parts."""
        self.save(self._rotated(x), visit)

    def input_gradient(
        self, g: torch.Tensor, visit: OperatorCall, overlapped: Sequence[Collective] = ()
    ) -> torch.Tensor:
        """Return the gradient of the projection's result."""
        heads = self.heads(self.take_saved(visit))
        out, of_out = (by_heads(part, self.op.v_dim) for part in (visit.kept.pop("output"), g))
        statistic = visit.kept.pop("statistic")
        fused = g.new_empty((*g.shape[:2], sum(head_widths(self.op, self.setting.tp))))
        to = self.heads(fused.split(head_widths(self.op, self.setting.tp), -1))
        for span in self._spans:
            g_of, q, k, v, out_of = (span.of(part) for part in (of_out, *heads, out))
            of_rows = span.of(statistic[..., None])[..., 0] if statistic.numel() else statistic
            found = attention_gradients(g_of, q, k, v, out_of, of_rows, self._scores)
            for whole, gradient in zip(to, found, strict=True):
                span.put(whole, gradient)
        self._rotate(fused, backward=True)
        return fused

    def _attend(self, parts: Sequence[torch.Tensor], visit: OperatorCall) -> torch.Tensor:
        heads = self.heads(parts)
        y = parts[0].new_empty((*parts[0].shape[:2], heads[0].shape[1] * self.op.v_dim))
        out = by_heads(y, self.op.v_dim)
        statistic = parts[0].new_empty(0)
        for span in self._spans:
            q, k, v = (span.of(part) for part in heads)
            found, of_rows = attend(q, k, v, self._scores)
            span.put(out, found)
            if of_rows.numel():  # not every kernel returns it
                statistic = statistic if statistic.numel() else of_rows.new_empty(out.shape[:-1])
                span.put(statistic[..., None], of_rows[..., None])
        if visit.keep.inner:
            visit.kept |= {"statistic": statistic, "output": y}
        return y

    def _rotated(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        self._rotate(x)
        return x.split(head_widths(self.op, self.setting.tp), -1)

    def _rotate(self, fused: torch.Tensor, *, backward: bool = False) -> None:
        """Rotate queries and keys in the fused buffer, in place."""
        values = head_widths(self.op, self.setting.tp)[-1]
        turned = fused[..., :-values].unflatten(-1, (-1, self.op.qk_dim))
        self._rotation(fused).apply(turned, backward=backward)

    def _rotation(self, like: torch.Tensor) -> Rotation:
        vision, images = self.setting.architecture.encoder, self.setting.shape.encoder.images
        assert isinstance(vision, VisionEncoder)
        assert images is not None
        half = Rotary(theta=vision.rope_theta, dim=self.op.qk_dim // 2)

        def made() -> Rotation:
            places = torch.from_numpy(images.patch_places(vision.merge, vision.window))
            frequencies = torch.tensor(half.frequencies(0), dtype=torch.float64)
            angles = (
                (places[..., None] * frequencies).transpose(0, 1).flatten(1)
            )  # of the row, then of the column
            return turned_by(angles.to(like.device), Rotary(theta=half.theta, dim=self.op.qk_dim), like)

        return self.setting.tables.get("rotation in images", made)

    @property
    def _scores(self) -> Scores:
        return Scores(self.scale, None, None, causal=False)

    @cached_property
    def _spans(self) -> tuple["Spans", ...]:
        """Spans of a sequence that attend to themselves; those of one length in one."""
        images = self.setting.shape.encoder.images
        assert images is not None
        return tuple(_runs(images.spans(self.op.merge, self.op.side)))


@dataclass(frozen=True)
class Spans:
    """``count`` spans of ``length`` tokens each, from ``begin`` on."""

    begin: int
    count: int
    length: int

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """Return spans as sequences: (batch, heads, tokens, width) → (batch · count, heads, length, width)."""
        return self._apart(x).flatten(0, 1)

    def put(self, x: torch.Tensor, found: torch.Tensor) -> None:
        """Write the spans of ``found`` to their places in ``x``."""
        apart = self._apart(x)
        apart.copy_(found.view(apart.shape))

    def _apart(self, x: torch.Tensor) -> torch.Tensor:
        own = x[:, :, self.begin : self.begin + self.count * self.length]
        return own.unflatten(2, (self.count, self.length)).transpose(1, 2)


def _runs(lengths: Sequence[int]) -> Iterator[Spans]:
    begin = 0
    for length, run in groupby(lengths):
        count = len(list(run))
        yield Spans(begin, count, length)
        begin += count * length
