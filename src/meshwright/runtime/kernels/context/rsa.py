"""Ring self-attention: keys go round until all scores of a rank's rows are there, then values go round.

Li et al., arXiv 2105.13120. The softmax is that of whole rows, so it is written down: (rows × sequence) weights on
every rank. Backward values go round with their gradients, then keys with theirs. It is the plain form that the others
are held against; a rank's weights grow with the whole sequence.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from meshwright.program.context import Stretches
from meshwright.runtime.kernels.attention_core import (
    Scores,
    Triple,
    each_query,
    masked_scores,
    shared_gradient,
)
from meshwright.runtime.kernels.context.forms import Attended, Beside, Kept, Part
from meshwright.runtime.rounds import Round, begin_round, round_trip


@dataclass(frozen=True)
class WrittenScores(Part):
    """A rank with its rows of the weights; columns lie in the order of the places that had the keys."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Keys round once, then values."""
        (item,), (q, k, v) = beside, heads
        ring = begin_round(self.setting.communicator, item)
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

    def gradients(self, heads: Triple, of: Attended, beside: Beside) -> Triple:
        """Values round once with their gradients, then keys with theirs."""
        (item,), (q, k, v) = beside, heads
        ring = begin_round(self.setting.communicator, item)
        weights, length, g = of.kept["scores"], k.shape[-2], of.gradient
        inner = torch.empty_like(weights)

        def of_values(place: int, values: torch.Tensor) -> torch.Tensor:
            columns = self._columns(place, length)
            inner[..., columns] = g @ each_query(values, q).transpose(-1, -2)
            return shared_gradient(weights[..., columns].transpose(-1, -2) @ g, v)

        dv = round_trip(ring, v.contiguous(), of_values)
        inner = weights * (inner - (weights * inner).sum(-1, keepdim=True))
        dq = torch.zeros_like(q)

        def of_keys(place: int, keys: torch.Tensor) -> torch.Tensor:
            rule = self._scores(place, q)
            slope = masked_scores(q, keys, rule)[1]
            part = (inner[..., self._columns(place, length)] * slope * rule.scale).to(q)
            dq.add_(part @ each_query(keys, q))
            return shared_gradient(part.transpose(-1, -2) @ q, k)

        dk = round_trip(ring, k.contiguous(), of_keys)
        ring.end()
        return dq, dk, dv

    def _columns(self, place: int, length: int) -> slice:
        place %= self.ranks
        return slice(place * length, (place + 1) * length)

    def _scores(self, place: int, q: torch.Tensor) -> Scores:
        """What is done to the scores with the keys of a place; made once unless sequences are packed."""
        key = ("rows", self.mine, self.of(place), self.tiled.op.window, self.setting.layer)
        theirs: Stretches = self.of(place)
        if self.tiled.packing is not None:
            return self.tiled.scores_between(self.mine, theirs, q)
        return self.setting.tables.get(key, lambda: self.tiled.scores_between(self.mine, theirs, q))


def _round(ring: Round, held: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Each rank's tensor with the place that it belongs to, as it goes round."""
    steps, held = len(ring.ranks), held.contiguous()
    for step in range(steps):
        passing = ring.pass_on(held) if step + 1 < steps else None
        yield (ring.place - step) % steps, held
        held = passing.wait() if passing else held
