"""Causal attention of the heads of one rank: rotation, scores, softmax, values.

Queries, keys and values are parts of one buffer, which the projection wrote and the rotation changes in place; they are
kept rotated, with one statistic per row. The output is kept by the next operator, which multiplies it.

With cp each rank has a part of every sequence. Around attention heads may be exchanged for the rest of the sequence
(``context/heads.py``), keys and values may be gathered; what goes round while a rank attends is in its form's file.
Between these items the value is ``Parts``; what the items of a pass begin or end with is known beforehand.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.operators import Attention
from meshwright.plan.context import ContextForm
from meshwright.program.items import Collective
from meshwright.runtime.kernels.attention_core import Triple, sink_gradients, with_sinks
from meshwright.runtime.kernels.context.forms import Alone, Form, Kept
from meshwright.runtime.kernels.context.gathered import Gathered
from meshwright.runtime.kernels.context.heads import Heads
from meshwright.runtime.kernels.context.ring import Ring
from meshwright.runtime.kernels.context.rsa import WrittenScores
from meshwright.runtime.kernels.context.tiled import Tiled
from meshwright.runtime.kernels.context.token_ring import TokenRing
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange
from meshwright.runtime.kernels.rotation import Rotation, rotation
from meshwright.runtime.visit import Visit

PARTS = ("queries", "keys", "values")
ROWS = ("statistic", "scores")
"""What a form keeps of rows: one of them."""
FORMS: Mapping[ContextForm, Callable[[Tiled], Form]] = {
    "ring": Ring,
    "all-gather": Gathered,
    "token-ring": TokenRing,
    "rsa": WrittenScores,
}
"""What a rank with a part of the sequence does, by the form of context parallelism."""


@dataclass(frozen=True)
class Parts:
    """Queries, keys and values (sequence, batch, heads · width), rotated; or the gradients of all three.

    ``whole``: keys and values are those of all ranks, in the order of the ranks.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    whole: bool = False

    @property
    def all(self) -> Triple:
        """The three."""
        return self.queries, self.keys, self.values

    @classmethod
    def of(cls, parts: Iterable[torch.Tensor], whole: bool = False) -> "Parts":
        """Three tensors, in the order of the fields."""
        queries, keys, values = parts
        return cls(queries, keys, values, whole)


Input = Value
"""What the projections made, or parts."""


@dataclass(frozen=True)
class AttentionKernel:
    """softmax(QKᵀ)V for heads/tp query heads and kv_heads/tp key-value heads."""

    op: Attention
    setting: Setting

    @cached_property
    def widths(self) -> tuple[int, int, int]:
        """Widths of queries, keys and values on this rank."""
        return head_widths(self.op, self.setting.tp)

    @cached_property
    def dims(self) -> tuple[int, int, int]:
        """Widths of a head of each."""
        return self.op.qk_dim, self.op.qk_dim, self.op.v_dim

    @cached_property
    def form(self) -> Form:
        """What this rank does while it attends."""
        tiled = Tiled(self.op, self.setting)
        return FORMS[self.setting.context.form](tiled) if self.setting.shape.ring > 1 else Alone(tiled)

    @cached_property
    def heads(self) -> Heads:
        """The exchange of heads."""
        return Heads(self.setting)

    # -- forward ------------------------------------------------------------------------------------------------

    def forward(self, x: Input, visit: Visit, beside: Sequence[Collective] = ()) -> torch.Tensor:
        """(sequence, batch, sum of widths) → (sequence, batch, heads · v_dim)."""
        parts = self._begun(x, visit)
        q, k, v = self._apart(parts)
        out, kept = self.form.forward(q, k, v, beside)
        sinks = self._own_sinks(visit)
        if sinks is not None:
            out, kept["statistic"] = with_sinks(out, kept["statistic"], sinks)
        y = out.permute(2, 0, 1, 3).flatten(2)
        if visit.keep.inner:
            visit.kept |= kept | {"output": y}
        return y

    def kept_value(self, visit: Visit) -> Parts:
        """What was kept, which is rotated already and has its heads."""
        return Parts.of(visit.kept[name] for name in PARTS)

    def again(self, visit: Visit) -> torch.Tensor:
        """On what was kept."""
        return self.forward(self.kept_value(visit), visit)

    def restore(self, x: Value, visit: Visit) -> None:
        """Rotate and keep the parts; those that exchange their heads first are kept by that."""
        if self.setting.shape.ulysses == 1:
            self._keep(Parts.of(self._turned(x)), visit)

    def _begun(self, x: Input, visit: Visit) -> Parts:
        """The parts, rotated, and kept with the heads that this rank attends with; once in a pass."""
        parts = x if isinstance(x, Parts) else Parts.of(self._turned(x))
        if visit.keep.inputs and not parts.whole:
            self._keep(parts, visit)
        return parts

    def _keep(self, parts: Parts, visit: Visit) -> None:
        visit.kept |= dict(zip(PARTS, parts.all, strict=True))

    # -- backward -----------------------------------------------------------------------------------------------

    def input_gradient(self, g: Value, visit: Visit, beside: Sequence[Collective] = ()) -> Value:
        """Gradients of queries, keys and values; as the projections wrote them where nothing is exchanged after it."""
        g, parts = g if isinstance(g, tuple) else (g, self.kept_value(visit))
        for name in PARTS:
            del visit.kept[name]
        q, k, v = self._apart(parts)
        out, of_out = (by_heads(part, self.op.v_dim) for part in (visit.kept.pop("output"), g))
        kept: Kept = {name: visit.kept.pop(name) for name in ROWS if name in visit.kept}
        sinks = self._own_sinks(visit)
        if sinks is not None:
            of_sinks = visit.unit(self.sinks).gradient_of(self.sinks)
            self._own(of_sinks).add_(sink_gradients(of_out, out, kept["statistic"], sinks))
        found = self.form.gradients(of_out, q, k, v, out, kept, beside)
        if parts.whole or self.setting.shape.ulysses > 1:
            return Parts.of((gradient.permute(2, 0, 1, 3).flatten(2) for gradient in found), parts.whole)
        return self._fused(found)

    def weight_gradient(self, visit: Visit) -> None:
        """There are no matrices; sinks are done with the input's gradient."""

    def _fused(self, gradients: Sequence[torch.Tensor]) -> Value:
        """Gradients of the three by head as that of the projection's result."""
        batch, _, length, _ = gradients[0].shape
        fused = gradients[0].new_empty((length, batch, sum(self.widths)))
        for part, gradient in zip(fused.split(self.widths, -1), gradients, strict=True):
            by_heads(part, gradient.shape[-1]).copy_(gradient)
        self._grow(fused[..., : self.widths[0]])
        self._rotate([fused[..., : -self.widths[-1]]], backward=True)
        return fused

    # -- sinks --------------------------------------------------------------------------------------------------

    @property
    def sinks(self) -> str:
        """The full name of the heads' sinks, where there are any."""
        return self.setting.named(self.op.parameters[0]) if self.op.parameters else ""

    def _own_sinks(self, visit: Visit) -> torch.Tensor | None:
        return self._own(visit.unit(self.sinks).view(self.sinks)) if self.sinks else None

    def _own(self, of_heads: torch.Tensor) -> torch.Tensor:
        """The part of a tensor over tp's heads that this rank attends with."""
        heads = len(of_heads) // int(self.setting.shape.ulysses)
        return of_heads[self.setting.heads_place * heads :][:heads]

    # -- exchanges ----------------------------------------------------------------------------------------------

    def exchange(self, item: Collective, x: Input, visit: Visit) -> Exchange:
        """Heads for positions, or keys and values together."""
        if item.kind == "all-to-all":
            return (yield from self._exchange_heads(item, x, visit))
        assert item.kind in ("all-gather", "reduce-scatter"), item
        if item.kind == "reduce-scatter":
            assert isinstance(x, Parts)
            keys, values = yield from self._together(item, x)
            mine = Parts(x.queries, keys, values)
            return mine if self.setting.shape.ulysses > 1 else self._fused(self._apart(mine))
        if item.phase == "I":
            parts = self.kept_value(visit)
            keys, values = yield from self._together(item, parts)
            return x, Parts(parts.queries, keys, values, whole=True)
        parts = self._begun(x, visit)
        keys, values = yield from self._together(item, parts)
        return Parts(parts.queries, keys, values, whole=True)

    def _exchange_heads(self, item: Collective, x: Input, visit: Visit) -> Exchange:
        there = item.what.endswith("entering") == (item.phase != "I")
        if item.what.endswith("leaving"):
            assert isinstance(x, torch.Tensor)
            (y,) = yield from self.heads.exchange(item, (x,), to_heads=there)
            return y
        parts = x if isinstance(x, Parts) else Parts.of(self._turned(x))
        parts = Parts.of((yield from self.heads.exchange(item, parts.all, to_heads=there)))
        if not there:
            return self._fused(self._apart(parts))
        return self._begun(parts, visit)

    def _together(self, item: Collective, parts: Parts) -> Exchange:
        """Keys and values in one exchange along the sequence."""
        widths = parts.keys.shape[-1], parts.values.shape[-1]
        both = torch.cat((parts.keys, parts.values), -1)
        whole = yield from tensor_exchange(self.setting.communicator, item, both)
        return whole.split(widths, -1)

    def _apart(self, parts: Parts) -> Triple:
        q, k, v = map(by_heads, parts.all, self.dims)
        return q, k, v

    # -- positions ----------------------------------------------------------------------------------------------

    def _turned(self, x: Value) -> tuple[torch.Tensor, ...]:
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
        """How positions turn the layer's heads."""
        rotary = self.setting.numerics.rotary[self.setting.decoder_layer]
        if rotary is None:
            return None
        length, positions = int(self.setting.shape.seq_len), self.setting.positions
        return self.setting.tables.get(rotary, lambda: rotation(rotary, length, positions, like))

    def _grow(self, queries: torch.Tensor) -> None:
        """What some models multiply far queries with; it commutes with their rotation, and is its own gradient."""
        growth = self.setting.numerics.query_growth
        if growth is None:
            return
        positions = self.setting.positions.to(torch.float64)
        factor = 1 + growth.beta * torch.log1p(torch.floor(positions / growth.positions))
        queries *= factor.to(queries)[:, None, None]


def head_widths(op: Attention, tp: int) -> tuple[int, int, int]:
    """Widths of queries, keys and values that one tp rank has."""
    heads, kv_heads = op.heads // tp, op.kv_heads // tp
    return heads * op.qk_dim, kv_heads * op.qk_dim, kv_heads * op.v_dim


def by_heads(part: torch.Tensor, width: int) -> torch.Tensor:
    """(sequence, batch, heads · width) as (batch, heads, sequence, width), the same memory."""
    return part.unflatten(-1, (-1, width)).permute(1, 2, 0, 3)
