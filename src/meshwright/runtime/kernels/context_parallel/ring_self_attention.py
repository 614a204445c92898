"""Ring self-attention: keys circulate until all scores of a rank's rows are known, then values (2105.13120).

Li et al., arXiv 2105.13120. The softmax is over whole rows, so it is materialised: (rows × sequence) weights on
every rank, which grow with the whole sequence. In the backward pass values circulate with their gradients, then keys
with theirs. It is the simple form that the others are compared with.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from meshwright.program.context_parallel.positions_and_masks import Stretches
from meshwright.runtime.comm.ring_exchange import RingExchange, begin_ring_exchange, ring_gather_and_sum
from meshwright.runtime.kernels.attention.scaled_dot_product import (
    Scores,
    Triple,
    each_query,
    masked_scores,
    shared_gradient,
)
from meshwright.runtime.kernels.context_parallel.interface import AttentionOutput, Beside, Kept, RingMember


@dataclass(frozen=True)
class RingSelfAttention(RingMember):
    """A rank with its rows of the weights; columns are ordered by the ring place of their keys."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Attend while keys go round once, then values."""
        (item,), (q, k, v) = beside, heads
        ring = begin_ring_exchange(self.setting.communicator, item)
        scores = [
            (place, masked_scores(q, keys, self._scores(place, q))[0]) for place, keys in _round(ring, k)
        ]
        scores.sort(key=lambda one: one[0])
        weights = torch.cat([of for _, of in scores], -1).softmax(-1).to(q)
        parts = weights.split(k.shape[-2], -1)
        out = q.new_zeros((*q.shape[:-1], v.shape[-1]), dtype=torch.promote_types(q.dtype, torch.float32))
        for place, values in _round(ring, v):
            out += parts[place] @ each_query(values, q)
        ring.end()
        return out.to(q), {"scores": weights}

    def gradients(self, heads: Triple, of: AttentionOutput, beside: Beside) -> Triple:
        """Return the gradients while values go round with theirs, then keys with theirs."""
        (item,), (q, k, v) = beside, heads
        ring = begin_ring_exchange(self.setting.communicator, item)
        weights, length, g = of.kept["scores"], k.shape[-2], of.gradient
        inner = torch.empty_like(weights)

        def of_values(place: int, values: torch.Tensor) -> torch.Tensor:
            columns = self._columns(place, length)
            inner[..., columns] = g @ each_query(values, q).transpose(-1, -2)
            return shared_gradient(weights[..., columns].transpose(-1, -2) @ g, v)

        dv = ring_gather_and_sum(ring, v.contiguous(), of_values)
        inner = weights * (inner - (weights * inner).sum(-1, keepdim=True))
        dq = torch.zeros_like(q)

        def of_keys(place: int, keys: torch.Tensor) -> torch.Tensor:
            rule = self._scores(place, q)
            slope = masked_scores(q, keys, rule)[1]
            part = (inner[..., self._columns(place, length)] * slope * rule.scale).to(q)
            dq.add_(part @ each_query(keys, q))
            return shared_gradient(part.transpose(-1, -2) @ q, k)

        dk = ring_gather_and_sum(ring, k.contiguous(), of_keys)
        ring.end()
        return dq, dk, dv

    def _columns(self, place: int, length: int) -> slice:
        place %= self.ranks
        return slice(place * length, (place + 1) * length)

    def _scores(self, place: int, q: torch.Tensor) -> Scores:
        """Return the scale, cap and mask for the keys of a ring place; cached unless sequences are packed."""
        key = ("rows", self.mine, self.of(place), self.tiled.op.window, self.setting.layer)
        theirs: Stretches = self.of(place)
        if self.tiled.packing is not None:
            return self.tiled.scores_between(self.mine, theirs, q)
        return self.setting.tables.get(key, lambda: self.tiled.scores_between(self.mine, theirs, q))


def _round(ring: RingExchange, held: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield each rank's tensor with its owner's ring place, as it goes round."""
    steps, held = len(ring.ranks), held.contiguous()
    for step in range(steps):
        passing = ring.pass_on(held) if step + 1 < steps else None
        yield (ring.place - step) % steps, held
        held = passing.wait() if passing else held
