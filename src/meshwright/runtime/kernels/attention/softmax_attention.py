"""Causal attention of the heads of one rank: rotation, scores, softmax, values.

Queries, keys and values are parts of one buffer, which the projection wrote and the rotation changes in place; they are
saved after rotation, with one statistic per row. The output is saved by the next operator, a matrix product.

With cp each rank holds a part of every sequence. Around attention, heads may be exchanged for the rest of the sequence
(``runtime/kernels/context_parallel/ulysses.py``), or keys and values gathered; exchanges during attention are in the
file of the context-parallel form. Between these items the value is ``Parts``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.attention.rotated_heads import RotatedHeads, by_heads
from meshwright.runtime.kernels.attention.scaled_dot_product import Triple, sink_gradients, with_sinks
from meshwright.runtime.kernels.context_parallel.interface import (
    AttentionOutput,
    ContextParallelForm,
    Kept,
    WholeSequence,
    load_kernel,
)
from meshwright.runtime.kernels.context_parallel.tiled_attention import TiledAttention
from meshwright.runtime.kernels.context_parallel.ulysses import UlyssesExchange
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange

PARTS = ("queries", "keys", "values")
ROWS = ("statistic", "scores")
"""Row statistics that a form saves: one of these."""


@dataclass(frozen=True)
class Parts:
    """Queries, keys and values (sequence, batch, heads · width), rotated; or the gradients of all three.

    ``whole``: keys and values are those of all ranks, in rank order.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    whole: bool = False

    @property
    def all(self) -> Triple:
        """Queries, keys and values."""
        return self.queries, self.keys, self.values

    @classmethod
    def of(cls, parts: Iterable[torch.Tensor], whole: bool = False) -> "Parts":
        """Create parts from three tensors in the order of the fields."""
        queries, keys, values = parts
        return cls(queries, keys, values, whole)


@dataclass(frozen=True)
class Sinks:
    """The sinks of the heads that this rank attends with; ``name`` is that of the tensor over tp's heads."""

    name: str
    setting: Setting

    def of(self, visit: OperatorCall) -> torch.Tensor:
        """Return one sink score for each head."""
        return self._own(visit.unit(self.name).view(self.name))

    def add_gradient(self, found: torch.Tensor, visit: OperatorCall) -> None:
        """Add a gradient for each head."""
        with visit.unit(self.name).gradients.adding(self.name) as total:
            self._own(total).add_(found)

    def _own(self, of_heads: torch.Tensor) -> torch.Tensor:
        heads = len(of_heads) // int(self.setting.shape.ulysses)
        return of_heads[self.setting.heads_place * heads :][:heads]


Input = Value
"""Results of the projections, or parts."""


@dataclass(frozen=True)
class AttentionKernel(RotatedHeads):
    """Attention kernel: softmax(QKᵀ)V for heads/tp query heads and kv_heads/tp key-value heads."""

    @cached_property
    def dims(self) -> tuple[int, int, int]:
        """Head widths of queries, keys and values."""
        return self.op.qk_dim, self.op.qk_dim, self.op.v_dim

    @cached_property
    def form(self) -> ContextParallelForm:
        """Form of this rank's attention: context-parallel, or on whole sequences."""
        alone = self.setting.shape.ring == 1
        kernel = WholeSequence if alone else load_kernel(self.setting.context.kind.kernel)
        return kernel(TiledAttention(self.op, self.setting))

    @cached_property
    def sinks(self) -> Sinks | None:
        """The sinks of the heads; None if there are none."""
        return Sinks(self.setting.named(self.op.parameters[0]), self.setting) if self.op.parameters else None

    # -- forward ------------------------------------------------------------------------------------------------

    def forward(self, x: Input, visit: OperatorCall, overlapped: Sequence[Collective] = ()) -> torch.Tensor:
        """Attend: (sequence, batch, sum of widths) → (sequence, batch, heads · v_dim)."""
        parts = self._begun(x, visit)
        out, kept = self.form.within(visit.batch.packing).forward(self._apart(parts), overlapped)
        if self.sinks:
            out, kept["statistic"] = with_sinks(out, kept["statistic"], self.sinks.of(visit))
        y = out.permute(2, 0, 1, 3).flatten(2)
        if visit.keep.inner:
            visit.kept |= kept | {"output": y}
        return y

    def kept_value(self, visit: OperatorCall) -> Parts:
        """Return the saved queries, keys and values, already rotated and with heads exchanged."""
        return Parts.of(visit.kept[name] for name in PARTS)

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Recompute the output from the saved parts."""
        return self.forward(self.kept_value(visit), visit)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Rotate and save the parts; with a head exchange, that exchange saves them."""
        if self.setting.shape.ulysses == 1:
            self._keep(Parts.of(self._rotated_heads(x, visit.batch)), visit)

    def _begun(self, x: Input, visit: OperatorCall) -> Parts:
        """Return the rotated parts, and save them once per pass, with the heads that this rank attends with."""
        parts = x if isinstance(x, Parts) else Parts.of(self._rotated_heads(x, visit.batch))
        if visit.keep.inputs and not parts.whole:
            self._keep(parts, visit)
        return parts

    def _keep(self, parts: Parts, visit: OperatorCall) -> None:
        visit.kept |= dict(zip(PARTS, parts.all, strict=True))

    # -- backward -----------------------------------------------------------------------------------------------

    def input_gradient(self, g: Value, visit: OperatorCall, overlapped: Sequence[Collective] = ()) -> Value:
        """Return the gradients of queries, keys and values; in the projections' layout if no exchange follows."""
        g, parts = g if isinstance(g, tuple) else (g, self.kept_value(visit))
        for name in PARTS:
            del visit.kept[name]
        out, of_out = (by_heads(part, self.op.v_dim) for part in (visit.kept.pop("output"), g))
        kept: Kept = {name: visit.kept.pop(name) for name in ROWS if name in visit.kept}
        if self.sinks and not self.op.frozen:
            found = sink_gradients(of_out, out, kept["statistic"], self.sinks.of(visit))
            self.sinks.add_gradient(found, visit)
        form = self.form.within(visit.batch.packing)
        parts_of = form.gradients(self._apart(parts), AttentionOutput(out, kept, of_out), overlapped)
        if parts.whole or self.setting.shape.ulysses > 1:
            return Parts.of((gradient.permute(2, 0, 1, 3).flatten(2) for gradient in parts_of), parts.whole)
        return self._fused(parts_of, visit.batch)

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no matrices, and sinks are done with the input's gradient."""

    # -- exchanges ----------------------------------------------------------------------------------------------

    def exchange(self, item: Collective, x: Input, visit: OperatorCall) -> Exchange:
        """Exchange heads for positions (all-to-all), or gather keys and values and scatter their gradients."""
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

    def _exchange_heads(self, item: Collective, x: Input, visit: OperatorCall) -> Exchange:
        there = item.what.endswith("entering") == (item.phase != "I")
        if item.what.endswith("leaving"):
            assert isinstance(x, torch.Tensor)
            (y,) = yield from UlyssesExchange(self.setting).exchange(item, (x,), to_heads=there)
            return y
        parts = x if isinstance(x, Parts) else Parts.of(self._rotated_heads(x, visit.batch))
        parts = Parts.of((yield from UlyssesExchange(self.setting).exchange(item, parts.all, to_heads=there)))
        if not there:
            return self._fused(self._apart(parts), visit.batch)
        return self._begun(parts, visit)

    def _together(self, item: Collective, parts: Parts) -> Exchange:
        """Gather or scatter keys and values along the sequence in one collective."""
        widths = parts.keys.shape[-1], parts.values.shape[-1]
        both = torch.cat((parts.keys, parts.values), -1)
        whole = yield from tensor_exchange(self.setting.communicator, item, both)
        return whole.split(widths, -1)

    def _apart(self, parts: Parts) -> Triple:
        q, k, v = map(by_heads, parts.all, self.dims)
        return q, k, v
