"""Ring attention: keys and values circulate, queries stay (Liu, Zaharia and Abbeel, arXiv 2310.01889).

At step t a rank attends to the keys of the rank t places before it, while it passes them on and receives the next ones.
In the backward pass the same keys circulate again. The gradients of a rank's keys start at the first rank that receives
the keys, travel with them, and reach their owner after the last step, where its own part is added.
"""

from dataclasses import dataclass

import torch

from meshwright.runtime.comm.ring_exchange import begin_ring_exchange, ring_gather_and_sum
from meshwright.runtime.kernels.attention.scaled_dot_product import Triple
from meshwright.runtime.kernels.context_parallel.interface import AttentionOutput, Beside, Kept, RingMember
from meshwright.runtime.kernels.context_parallel.tiled_attention import Partial


@dataclass(frozen=True)
class RingAttention(RingMember):
    """A rank of a ring."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Attend while keys and values go round once."""
        (item,), (q, k, v) = beside, heads
        ring, made, held = begin_ring_exchange(self.setting.communicator, item), Partial(), packed(k, v)
        for step in range(self.ranks):
            passing = ring.pass_on(held) if step + 1 < self.ranks else None
            self.tiled.attend(made, (q, *unpacked(held, k, v)), self.mine, self.of(ring.place - step))
            held = passing.wait() if passing else held
        ring.end()
        out, statistic = made.complete(q)
        return out, {"statistic": statistic}

    def gradients(self, heads: Triple, of: AttentionOutput, beside: Beside) -> Triple:
        """Return the gradients while keys and values go round again, followed by their gradients."""
        (item,), (q, k, v) = beside, heads
        ring, dq = begin_ring_exchange(self.setting.communicator, item), torch.zeros_like(q)

        def contribute(place: int, held: torch.Tensor) -> torch.Tensor:
            to = torch.zeros_like(held)
            totals, theirs = (dq, *unpacked(to, k, v)), (q, *unpacked(held, k, v))
            self.tiled.add_gradients(totals, theirs, self.rows(of), self.mine, self.of(place))
            return to

        own = ring_gather_and_sum(ring, packed(k, v), contribute)
        ring.end()
        return dq, *unpacked(own, k, v)


def packed(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return keys and values as one contiguous buffer to send."""
    return torch.cat((k.flatten(), v.flatten()))


def unpacked(held: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of a buffer in the shapes of keys and values."""
    return held[: k.numel()].view(k.shape), held[k.numel() :].view(v.shape)
