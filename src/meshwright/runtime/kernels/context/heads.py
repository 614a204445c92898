"""Heads for positions: every rank gives away its positions of most heads and gets the other positions of the rest.

Jacobs et al., arXiv 2309.14509: with u ranks one all-to-all brings u times the positions of 1/u of the heads, another
one takes the output back. Ranks hold stretches of what their ring rank has, one after the other, so that the positions
of all ranks one behind the other are those of the ring rank in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.program.items import Collective
from meshwright.program.shape import ACTIVATION_BYTES
from meshwright.runtime.kernels.kernel import Exchange, Setting


@dataclass(frozen=True)
class Heads:
    """The exchange on one rank."""

    setting: Setting

    def exchange(self, item: Collective, parts: Sequence[torch.Tensor], *, to_heads: bool) -> Exchange:
        """Exchange (sequence, batch, width) tensors at once: ``to_heads`` u times the positions, else all heads."""
        ranks = int(self.setting.shape.ulysses)
        sent = [_heads_apart(part, ranks) if to_heads else _positions_apart(part, ranks) for part in parts]
        widths = [part.shape[-1] for part in sent]
        out = torch.cat(sent, -1)
        came = torch.empty_like(out)
        yield self.setting.communicator.start(item, out, ACTIVATION_BYTES, out=came)
        put = _positions_together if to_heads else _heads_together
        return tuple(put(part) for part in came.split(widths, -1))


def _heads_apart(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """(sequence, batch, width) → (ranks, sequence, batch, width/ranks)."""
    return x.unflatten(-1, (ranks, -1)).permute(2, 0, 1, 3)


def _heads_together(x: torch.Tensor) -> torch.Tensor:
    return x.permute(1, 2, 0, 3).flatten(2)


def _positions_apart(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """(sequence, batch, width) → (ranks, sequence/ranks, batch, width)."""
    return x.unflatten(0, (ranks, -1))


def _positions_together(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(0, 1).contiguous()
