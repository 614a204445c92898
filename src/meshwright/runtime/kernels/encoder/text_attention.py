"""Attention of models with a text encoder: scores by relative position are added, or the keys are the encoder's.

Queries, keys and values are saved with one statistic per row. Where scores are added, they are saved once for all
layers, and the backward pass computes each layer's scores again: their gradient, summed over sequences, is that of the
added scores. With P = exp(S − L) and the output O it is P∘(dO·Vᵀ − Σ dO∘O) (Dao et al., arXiv 2205.14135,
appendix B.2). Rows are those of whole texts: no cp cuts them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.attention.rotated_heads import by_heads, head_widths
from meshwright.runtime.kernels.attention.scaled_dot_product import (
    Scores,
    Triple,
    attend,
    attention_gradients,
    masked_scores,
)
from meshwright.runtime.kernels.encoder.unsharded_attention import UnshardedAttention
from meshwright.runtime.kernels.kernel import Value

ADDED = "added scores"


@dataclass(frozen=True)
class TextAttentionKernel(UnshardedAttention):
    """softmax(QKᵀ + added scores)·V; a read value is the projections' results, and behind them the added scores."""

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Attend: the projections' results → (sequence, batch, heads · v_dim)."""
        parts, added = self._read(x)
        if visit.keep.inputs:
            self._keep(parts, added, visit)
        return self._attend(parts, added, visit)

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Recompute the output from the saved parts."""
        return self._attend(self.saved(visit), visit.kept.get(ADDED), visit)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Save the recomputed parts."""
        self._keep(*self._read(x), visit)

    def input_gradient(
        self, g: torch.Tensor, visit: OperatorCall, overlapped: Sequence[Collective] = ()
    ) -> Value:
        """Return the gradients of what the operator reads, in its order."""
        q, k, v = self.heads(self.take_saved(visit))
        added, statistic = visit.kept.pop(ADDED, None), visit.kept.pop("statistic")
        out, of_out = (by_heads(part, self.op.v_dim) for part in (visit.kept.pop("output"), g))
        scores = self._scores(added)
        found = [
            part.permute(2, 0, 1, 3).flatten(2)
            for part in attention_gradients(of_out, q, k, v, out, statistic, scores)
        ]
        if self.op.keys != self.op.tokens:
            return found[0], torch.cat(found[1:], -1)
        return torch.cat(found, -1), _of_added((q, k, v), (of_out, out, statistic), scores)

    def _read(self, x: Value) -> tuple[Sequence[torch.Tensor], torch.Tensor | None]:
        """Return queries, keys and values, and the added scores."""
        queries, keys, values = head_widths(self.op, self.setting.tp)
        if self.op.keys != self.op.tokens:
            q, kv = x
            return (q, *kv.split((keys, values), -1)), None
        qkv, added = x
        return qkv.split((queries, keys, values), -1), added

    def _attend(
        self, parts: Sequence[torch.Tensor], added: torch.Tensor | None, visit: OperatorCall
    ) -> torch.Tensor:
        q, k, v = self.heads(parts)
        out, statistic = attend(q, k, v, self._scores(added))
        y = out.permute(2, 0, 1, 3).flatten(2)
        if visit.keep.inner:
            visit.kept |= {"statistic": statistic, "output": y}
        return y

    def _keep(self, parts: Sequence[torch.Tensor], added: torch.Tensor | None, visit: OperatorCall) -> None:
        self.save(parts, visit)
        if added is not None:
            visit.kept[ADDED] = added

    def _scores(self, added: torch.Tensor | None) -> Scores:
        if added is None:
            return Scores(self.scale, None, None, causal=False)
        if not self.op.causal:
            return Scores(self.scale, None, added[None], causal=False, whole=False)
        future = torch.full(added.shape[-2:], float("-inf"), dtype=added.dtype, device=added.device).triu(1)
        return Scores(self.scale, None, (added + future)[None], causal=False, whole=False)


def _of_added(heads: Triple, rows: Triple, scores: Scores) -> torch.Tensor:
    """Return the gradient of the added scores, (heads, queries, keys), summed over sequences in fp32 or wider."""
    (q, k, v), (g, out, statistic) = heads, rows
    found, _ = masked_scores(q, k, scores)
    weights = torch.exp(found - statistic[..., None])
    wide = g.to(weights)
    inner = wide @ v.to(weights).transpose(-1, -2) - (wide * out).sum(-1, keepdim=True)
    return (weights * inner).sum(0)
