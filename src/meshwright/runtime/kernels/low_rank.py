"""Adapters: y + scale·(x·Aᵀ)·Bᵀ added to the results of frozen matrices, with deferred gradients of A and B.

For one matrix, with t = x·Aᵀ and g the gradient of the result: dt = scale·g·B, dx = dt·A, dB = scale·gᵀ·t, dA = dtᵀ·x.
I saves g and dt for W, so that W needs neither A nor B. Where tp cuts the matrix along its outputs, B is cut alike;
where it cuts the inputs, A is, and t is this rank's part of a sum, which goes into the matrix's own partial result.

The input is that of the frozen operator. Of several adapters on one input all keep the same tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch.nn import functional

from meshwright.model.operators.operator_types import AdaptedMatrix, ExpertLowRank, LowRank
from meshwright.model.transforms.lora_adapters import SUFFIX
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.attention.latent_attention import PARTS
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange
from meshwright.runtime.kernels.moe.dispatch_combine import routes_of
from meshwright.runtime.kernels.moe.grouped_gemm import add_weight_product, input_product, product


class LowRankPair(NamedTuple):
    """The full names of A and B of one matrix, and this rank's columns of the result that it adds to."""

    down: str
    up: str
    columns: slice


@dataclass(frozen=True)
class AdaptedValues:
    """The input and the result of an operator with adapters: one tensor each, or a pair in latent attention."""

    op: LowRank
    setting: Setting

    def part(self, x: Value) -> torch.Tensor:
        """Return the operator's input; of a pair of compressed rows its own, with what passes through it."""
        return x[PARTS[self.op.adapted]] if self.in_pair else x

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return an input without what passes through the operator."""
        return x[..., : self.op.inputs] if self.in_pair else x

    def spread(self, g: torch.Tensor) -> Value:
        """Return the gradient of the operator's input as the input is."""
        if not self.in_pair:
            return g
        latent = self.setting.architecture.latent
        assert latent is not None
        if PARTS[self.op.adapted] == 0:
            return g, None
        return None, torch.cat((g, g.new_zeros((*g.shape[:-1], latent.qk_rope_dim))), -1)

    @staticmethod
    def heads(y: Value) -> torch.Tensor:
        """Return the operator's result without what passes through it."""
        return y[0] if isinstance(y, tuple) else y

    @property
    def in_pair(self) -> bool:
        """True if the operator's input is one of a pair that is exchanged together."""
        return self.setting.architecture.latent is not None and self.op.adapted in PARTS

    def sharing(self, visit: OperatorCall) -> Sequence[OperatorCall]:
        """Return the calls of all adapters whose saved input belongs to one exchange."""
        others = [name + SUFFIX for name in PARTS] if self.in_pair else []
        return [visit.others[name] for name in others if name in visit.others] or [visit]


@dataclass(frozen=True)
class LowRankKernel:
    """The adapters of one linear operator; its input is (the operator's result, the operator's input)."""

    op: LowRank
    setting: Setting

    @cached_property
    def pairs(self) -> tuple[LowRankPair, ...]:
        """The adapted matrices."""
        return tuple(map(self._pair, self.op.matrices))

    def forward(self, x: Value, visit: OperatorCall) -> Value:
        """Return the operator's result with the products added."""
        y, inputs = x
        if inputs is None:  # recomputation that begins with the operator
            return self._added(y, visit.kept["input"], visit)
        if visit.keep.inputs:
            visit.kept["input"] = self.values.part(inputs if visit.source is None else visit.source)
        return self._added(y, self.values.part(inputs), visit)

    def again(self, visit: OperatorCall) -> Value:
        """Raise AssertionError: no recomputed segment begins here."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Save the recomputed input."""
        visit.kept["input"] = self.values.part(x)

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return the gradients of the operator's result and of its input; save what W needs."""
        of_result, kept = self.values.heads(g), visit.kept
        kept["output_gradient"] = of_result
        found: torch.Tensor | None = None
        for number, pair in enumerate(self.pairs):
            up, down = visit.unit(pair.up).view(pair.up), visit.unit(pair.down).view(pair.down)
            of_small = self._input_product(of_result[..., pair.columns], up, visit).mul_(self.op.scale)
            kept[f"small_gradient {number}"] = of_small
            part = self._input_product(of_small, down, visit)
            found = part if found is None else found.add_(part)
        assert found is not None
        return g, self.values.spread(found)

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add the gradients of A and B."""
        kept = visit.kept
        x, g = kept.pop("gathered" if "gathered" in kept else "input"), kept.pop("output_gradient")
        for number, pair in enumerate(self.pairs):
            small, of_small = kept.pop(f"small {number}"), kept.pop(f"small_gradient {number}")
            self._add_product(pair.up, g[..., pair.columns], small * self.op.scale, visit)
            self._add_product(pair.down, of_small, self.values.inputs(x), visit)

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Gather the saved input for W of all adapters that share it; return ``x`` unchanged."""
        visits = self.values.sharing(visit)
        distinct = {id(of.kept["input"]): of.kept["input"] for of in visits}
        joined = torch.cat(list(distinct.values()), -1) if len(distinct) > 1 else visit.kept["input"]
        tokens = joined.shape[1] * len(joined) * self.setting.tp
        width = int(item.logical_bytes) // (ACTIVATION_BYTES * tokens)
        if width > joined.shape[-1]:  # a pair is gathered as a whole, also for one adapter
            joined = functional.pad(joined, (0, width - joined.shape[-1]))
        whole = yield from tensor_exchange(self.setting.communicator, item, joined)
        widths = [part.shape[-1] for part in distinct.values()]
        parts = dict(zip(distinct, whole[..., : sum(widths)].split(widths, -1), strict=True))
        for of in visits:
            of.kept["gathered"] = parts[id(of.kept.pop("input"))]
        return x

    # -- products -----------------------------------------------------------------------------------------------

    def _added(self, y: Value, x: torch.Tensor, visit: OperatorCall) -> Value:
        result, x = self.values.heads(y), self.values.inputs(x)
        for number, pair in enumerate(self.pairs):
            small = self._product(x, visit.unit(pair.down).view(pair.down), visit)
            if visit.keep.inner:
                visit.kept[f"small {number}"] = small
            change = self._product(small, visit.unit(pair.up).view(pair.up), visit)
            result[..., pair.columns].add_(change, alpha=self.op.scale)
        return y

    def _product(self, x: torch.Tensor, w: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        return functional.linear(x.to(w), w)

    def _input_product(self, g: torch.Tensor, w: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        return g @ w

    def _add_product(self, name: str, g: torch.Tensor, x: torch.Tensor, visit: OperatorCall) -> None:
        g, x = g.flatten(0, 1), x.flatten(0, 1)
        visit.unit(name).gradients.add_product((name,), g, x.to(g))

    @cached_property
    def values(self) -> AdaptedValues:
        """The input and the result of the operator."""
        return AdaptedValues(self.op, self.setting)

    def _pair(self, matrix: AdaptedMatrix) -> LowRankPair:
        cut = self._cut if self.op.split == "column" else 1
        start, outputs = matrix.start // cut, matrix.outputs // cut
        names = {p.name: self.setting.named(p) for p in self.op.parameters}
        return LowRankPair(names[matrix.down], names[matrix.up], slice(start, start + outputs))

    @property
    def _cut(self) -> int:
        return self.setting.tp


@dataclass(frozen=True)
class ReplicaPairKernel(LowRankKernel):
    """The pairs of one data-parallel rank, which lie in the base already: they have gradients and change no result."""

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return the gradient of the operator's result, and none of its input; save what W needs."""
        of_result, kept = self.values.heads(g), visit.kept
        kept["output_gradient"] = of_result
        for number, pair in enumerate(self.pairs):
            up = visit.unit(pair.up).view(pair.up)
            of_small = self._input_product(of_result[..., pair.columns], up, visit)
            kept[f"small_gradient {number}"] = of_small
        return g, None

    def _added(self, y: Value, x: torch.Tensor, visit: OperatorCall) -> Value:
        if visit.keep.inner:
            for number, pair in enumerate(self.pairs):
                down = visit.unit(pair.down).view(pair.down)
                visit.kept[f"small {number}"] = self._product(self.values.inputs(x), down, visit)
        return y


@dataclass(frozen=True)
class ExpertLowRankKernel(LowRankKernel):
    """The adapters of every expert of this rank; rows are sorted by expert."""

    op: ExpertLowRank

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return the gradients of the operator's result and of its input; save what W needs."""
        visit.counts = routes_of(visit).own
        return super().input_gradient(g, visit)

    def _product(self, x: torch.Tensor, w: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        return product(x, w, routes_of(visit).own)

    def _input_product(self, g: torch.Tensor, w: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        return input_product(g, w, visit.counts)

    def _add_product(self, name: str, g: torch.Tensor, x: torch.Tensor, visit: OperatorCall) -> None:
        with visit.unit(name).gradients.adding(name) as total:
            add_weight_product(total, g, x, visit.counts)

    @property
    def _cut(self) -> int:
        return int(self.setting.shape.etp)
