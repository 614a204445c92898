"""Ring attention: keys and values go round, queries stay (Liu, Zaharia and Abbeel, arXiv 2310.01889).

At step t a rank attends to the keys of the rank t places before it, while it passes them on and takes the next ones.
Backward the same keys go round once more. The gradients of a rank's keys begin where the keys arrive first, follow them
from then on and are home after the last step, where the rank's own part, which never left, is added.
"""

from dataclasses import dataclass

import torch

from meshwright.runtime.kernels.attention_core import Triple
from meshwright.runtime.kernels.context.forms import Attended, Beside, Kept, Part
from meshwright.runtime.kernels.context.tiled import Partial
from meshwright.runtime.rounds import begin_round, round_trip


@dataclass(frozen=True)
class Ring(Part):
    """A rank of a ring."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Keys and values round once."""
        (item,), (q, k, v) = beside, heads
        ring, made, held = begin_round(self.setting.communicator, item), Partial(), packed(k, v)
        for step in range(self.ranks):
            passing = ring.pass_on(held) if step + 1 < self.ranks else None
            self.tiled.attend(made, (q, *unpacked(held, k, v)), self.mine, self.of(ring.place - step))
            held = passing.wait() if passing else held
        ring.end()
        out, statistic = made.complete(q)
        return out, {"statistic": statistic}

    def gradients(self, heads: Triple, of: Attended, beside: Beside) -> Triple:
        """Keys and values round once more, their gradients behind them."""
        (item,), (q, k, v) = beside, heads
        ring, dq = begin_round(self.setting.communicator, item), torch.zeros_like(q)

        def contribute(place: int, held: torch.Tensor) -> torch.Tensor:
            to = torch.zeros_like(held)
            totals, theirs = (dq, *unpacked(to, k, v)), (q, *unpacked(held, k, v))
            self.tiled.add_gradients(totals, theirs, self.rows(of), self.mine, self.of(place))
            return to

        own = round_trip(ring, packed(k, v), contribute)
        ring.end()
        return dq, *unpacked(own, k, v)


def packed(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys and values as one buffer that can be sent."""
    return torch.cat((k.flatten(), v.flatten()))


def unpacked(held: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of a buffer in the shapes of keys and values."""
    return held[: k.numel()].view(k.shape), held[k.numel() :].view(v.shape)
