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

from meshwright.plan.context import ContextForm
from meshwright.program.items import Collective
from meshwright.runtime.kernels.attention_core import Triple, sink_gradients, with_sinks
from meshwright.runtime.kernels.context.forms import Alone, Attended, Form, Kept
from meshwright.runtime.kernels.context.gathered import Gathered
from meshwright.runtime.kernels.context.heads import Heads
from meshwright.runtime.kernels.context.ring import Ring
from meshwright.runtime.kernels.context.rsa import WrittenScores
from meshwright.runtime.kernels.context.tiled import Tiled
from meshwright.runtime.kernels.context.token_ring import TokenRing
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange
from meshwright.runtime.kernels.turned_heads import TurnedHeads, by_heads
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


@dataclass(frozen=True)
class Sinks:
    """The sinks of the heads with which a rank attends; ``name`` is that of the tensor over tp's heads."""

    name: str
    setting: Setting

    def of(self, visit: Visit) -> torch.Tensor:
        """One for each head."""
        return self._own(visit.unit(self.name).view(self.name))

    def gradient(self, visit: Visit) -> torch.Tensor:
        """Where their gradients are summed up."""
        return self._own(visit.unit(self.name).gradient_of(self.name))

    def _own(self, of_heads: torch.Tensor) -> torch.Tensor:
        heads = len(of_heads) // int(self.setting.shape.ulysses)
        return of_heads[self.setting.heads_place * heads :][:heads]


Input = Value
"""What the projections made, or parts."""


@dataclass(frozen=True)
class AttentionKernel(TurnedHeads):
    """softmax(QKᵀ)V for heads/tp query heads and kv_heads/tp key-value heads."""

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
    def sinks(self) -> Sinks | None:
        """One more score of each head, where there are any."""
        return Sinks(self.setting.named(self.op.parameters[0]), self.setting) if self.op.parameters else None

    # -- forward ------------------------------------------------------------------------------------------------

    def forward(self, x: Input, visit: Visit, beside: Sequence[Collective] = ()) -> torch.Tensor:
        """(sequence, batch, sum of widths) → (sequence, batch, heads · v_dim)."""
        parts = self._begun(x, visit)
        out, kept = self.form.within(visit.batch.packing).forward(self._apart(parts), beside)
        if self.sinks:
            out, kept["statistic"] = with_sinks(out, kept["statistic"], self.sinks.of(visit))
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
            self._keep(Parts.of(self._turned(x, visit.batch)), visit)

    def _begun(self, x: Input, visit: Visit) -> Parts:
        """The parts, rotated, and kept with the heads that this rank attends with; once in a pass."""
        parts = x if isinstance(x, Parts) else Parts.of(self._turned(x, visit.batch))
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
        out, of_out = (by_heads(part, self.op.v_dim) for part in (visit.kept.pop("output"), g))
        kept: Kept = {name: visit.kept.pop(name) for name in ROWS if name in visit.kept}
        if self.sinks:
            found = sink_gradients(of_out, out, kept["statistic"], self.sinks.of(visit))
            self.sinks.gradient(visit).add_(found)
        form = self.form.within(visit.batch.packing)
        parts_of = form.gradients(self._apart(parts), Attended(out, kept, of_out), beside)
        if parts.whole or self.setting.shape.ulysses > 1:
            return Parts.of((gradient.permute(2, 0, 1, 3).flatten(2) for gradient in parts_of), parts.whole)
        return self._fused(parts_of, visit.batch)

    def weight_gradient(self, visit: Visit) -> None:
        """There are no matrices; sinks are done with the input's gradient."""

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
            return mine if self.setting.shape.ulysses > 1 else self._fused(self._apart(mine), visit.batch)
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
            (y,) = yield from Heads(self.setting).exchange(item, (x,), to_heads=there)
            return y
        parts = x if isinstance(x, Parts) else Parts.of(self._turned(x, visit.batch))
        parts = Parts.of((yield from Heads(self.setting).exchange(item, parts.all, to_heads=there)))
        if not there:
            return self._fused(self._apart(parts), visit.batch)
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
