"""Attention to keys and values that were gathered before it; their gradients are scattered after it.

Before the backward pass they are gathered again, so that a layer keeps its own part alone (Grattafiori et al., arXiv
2407.21783, section 3.3.2). Whoever gathers hands the whole ones over: what comes here is (…, all of the sequence, …) in
the order of the ranks that had it.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.program.context import Stretches
from meshwright.runtime.kernels.attention_core import Triple
from meshwright.runtime.kernels.context.forms import Attended, Beside, Kept, Part
from meshwright.runtime.kernels.context.tiled import Partial


@dataclass(frozen=True)
class Gathered(Part):
    """A rank that has its queries and all keys."""

    @property
    def order(self) -> torch.Tensor:
        """Places in what was gathered, in the order of the sequence."""
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
        """This rank's queries, everybody's keys."""
        made = Partial()
        self.tiled.attend(made, self._in_order(heads), self.mine, self.everything)
        out, statistic = made.complete(heads[0])
        return out, {"statistic": statistic}

    def gradients(self, heads: Triple, of: Attended, beside: Beside) -> Triple:
        """Gradients of this rank's queries and of everybody's keys and values."""
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
