"""Latent attention: low-rank rows outside the tensor-parallel region, projected up inside it (DeepSeek-V2, 2405.04434).

A token's compressed key-value row is followed by the rotary key that all heads share. Both pass through the norm, which
leaves the rotary key unchanged, and through the edge of the tensor-parallel region, together with the compressed query
rows: there the value is a pair, and one collective moves both. Each up-projection takes its part; that of keys and
values passes the rotary key on to attention, which appends it to every head's key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from meshwright.model.architecture import LatentAttention
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import MicroBatch, OperatorCall
from meshwright.runtime.kernels.attention.softmax_attention import AttentionKernel
from meshwright.runtime.kernels.kernel import Exchange, Value, tensor_exchange
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.kernels.norm import NormKernel

PARTS = {"q_b": 0, "kv_b": 1}
"""The part of the pair that each up-projection takes."""
NORMS = ("q_a_norm", "kv_a_norm")


@dataclass(frozen=True)
class CompressedNormKernel(NormKernel):
    """A norm of compressed rows; columns after the norm's width are unchanged."""

    @property
    def epsilon(self) -> float:
        """ε of these norms, which may differ from the other norms'."""
        return self.setting.numerics.latent_norm_epsilon

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Normalise the first ``width`` columns: (…, width and more) → the same shape."""
        rows, behind = self._cut(x)
        return torch.cat((super().forward(rows.contiguous(), visit), behind), -1)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the input's gradient; that of the further columns is unchanged."""
        rows, behind = self._cut(g)
        return torch.cat((super().input_gradient(rows, visit), behind), -1)

    def _cut(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        return x.split((self.op.width, x.shape[-1] - self.op.width), -1)


@dataclass(frozen=True)
class LatentUpProjectionKernel(LinearKernel):
    """Up-projection of this rank's heads from one part of the pair: queries, or keys and values."""

    def forward(self, x: Value, visit: OperatorCall) -> Value:
        """Return the heads: (query rows, key-value rows with the rotary key) → heads, or (heads, rotary key)."""
        part = PARTS[self.op.name]
        if visit.keep.inputs:
            visit.kept["input"] = (x if visit.source is None else visit.source)[part]
        return self._widened(x[part], visit)

    def again(self, visit: OperatorCall) -> Value:
        """Recompute the heads from the saved input."""
        return self._widened(visit.kept["input"], visit)

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return a pair with the gradient of this part; the other part's gradient comes from its own projection."""
        heads, *behind = g if isinstance(g, tuple) else (g,)
        found = torch.cat((super().input_gradient(heads, visit), *behind), -1)
        return (found, None) if PARTS[self.op.name] == 0 else (None, found)

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add the weight gradient, from the compressed rows without the rotary key."""
        name = "gathered" if "gathered" in visit.kept else "input"
        visit.kept[name] = visit.kept[name][..., : self.op.inputs]
        super().weight_gradient(visit)

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Gather both saved parts for W of both projections."""
        visits = [visit.others[name] for name in PARTS]
        parts = [of.kept.pop("input") for of in visits]
        whole = yield from tensor_exchange(self.setting.communicator, item, torch.cat(parts, -1))
        for of, part in zip(visits, whole.split([part.shape[-1] for part in parts], -1), strict=True):
            of.kept["gathered"] = part
        return x

    def _widened(self, rows: torch.Tensor, visit: OperatorCall) -> Value:
        y = functional.linear(rows[..., : self.op.inputs], self.table(visit))
        behind = rows[..., self.op.inputs :]
        return (y, behind) if behind.shape[-1] else y


@dataclass(frozen=True)
class LatentAttentionKernel(AttentionKernel):
    """Attention on (queries, (non-rotary keys and values, the rotary key of all heads))."""

    def _rotated_heads(self, x: Value, batch: MicroBatch) -> tuple[torch.Tensor, ...]:
        """Return queries, keys and values, rotated; the shared rotary key is expanded to every head."""
        q, (kv, rotary) = x
        queries = q.unflatten(-1, (-1, self.op.qk_dim))
        plain, values = kv.unflatten(-1, (-1, self._plain + self.op.v_dim)).split(
            (self._plain, self.op.v_dim), -1
        )
        rotated = rotary.unsqueeze(2).clone()
        self._apply_rotary(queries[..., self._plain :], batch)
        self._apply_rotary(rotated, batch)
        keys = torch.cat((plain, rotated.expand(-1, -1, plain.shape[2], -1)), -1)
        self._grow(q, batch)
        return q, keys.flatten(2), values.flatten(2)

    def _fused(self, gradients: Sequence[torch.Tensor], batch: MicroBatch) -> Value:
        """Return the gradients of both up-projections' results and of the rotary key, summed over heads."""
        of_queries, of_keys, of_values = (gradient.permute(2, 0, 1, 3).contiguous() for gradient in gradients)
        self._grow(of_queries.flatten(2), batch)
        self._apply_rotary(of_queries[..., self._plain :], batch, backward=True)
        of_plain, of_rotated = of_keys.split((self._plain, self._latent.qk_rope_dim), -1)
        of_rotary = of_rotated.sum(2, keepdim=True)
        self._apply_rotary(of_rotary, batch, backward=True)
        return of_queries.flatten(2), (torch.cat((of_plain, of_values), -1).flatten(2), of_rotary.squeeze(2))

    def _apply_rotary(self, heads: torch.Tensor, batch: MicroBatch, *, backward: bool = False) -> None:
        turn = self._rotation(heads, batch)
        if turn is not None:
            turn.apply(heads, backward=backward)

    @property
    def _latent(self) -> LatentAttention:
        assert self.setting.architecture.latent is not None
        return self.setting.architecture.latent

    @property
    def _plain(self) -> int:
        return self._latent.qk_nope_dim
