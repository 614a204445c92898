"""All-gather attention: attend to gathered keys and values, whose gradients are reduce-scattered afterwards.

Keys and values are gathered again for the backward pass, so that a layer saves only its own part (Grattafiori et al.,
arXiv 2407.21783, section 3.3.2). The attention kernel gathers; here they arrive as (…, whole sequence, …) in the order
of the ranks that held them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.program.context_parallel.positions_and_masks import Stretches
from meshwright.runtime.kernels.attention.scaled_dot_product import Triple
from meshwright.runtime.kernels.context_parallel.interface import AttentionOutput, Beside, Kept, RingMember
from meshwright.runtime.kernels.context_parallel.tiled_attention import Partial


@dataclass(frozen=True)
class AllGatherAttention(RingMember):
    """A rank with its own queries and all keys."""

    @property
    def order(self) -> torch.Tensor:
        """Indices into the gathered keys that put them in sequence order."""
        return self.setting.tables.get("order of what is gathered", self._order)

    def _order(self) -> torch.Tensor:
        positions = [
            torch.arange(start, stop) for place in range(self.ranks) for start, stop in self.of(place)
        ]
        return torch.cat(positions).argsort()

    @cached_property
    def everything(self) -> Stretches:
        """The whole sequence."""
        return ((0, int(self.setting.shape.seq_len)),)

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Attend with this rank's queries to all keys."""
        made = Partial()
        self.tiled.attend(made, self._in_order(heads), self.mine, self.everything)
        out, statistic = made.complete(heads[0])
        return out, {"statistic": statistic}

    def gradients(self, heads: Triple, of: AttentionOutput, beside: Beside) -> Triple:
        """Return the gradients of this rank's queries and of all keys and values."""
        q, k, v = heads
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        self.tiled.add_gradients(
            (dq, dk, dv), self._in_order(heads), self.rows(of), self.mine, self.everything
        )
        back = self.order.argsort().to(k.device)
        return dq, dk.index_select(2, back), dv.index_select(2, back)

    def _in_order(self, heads: Triple) -> Triple:
        q, k, v = heads
        return q, self._sorted(k), self._sorted(v)

    def _sorted(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.index_select(2, self.order.to(whole.device))
