"""Ulysses all-to-all: a rank trades its positions of most heads for all positions of the remaining heads.

Jacobs et al., arXiv 2309.14509: with u ranks one all-to-all gives each rank u times the positions of 1/u of the heads,
and another one returns the output. The u ranks hold consecutive parts of their ring rank's positions, so that
concatenating them in rank order restores the ring rank's order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.kernels.kernel import Exchange, Setting


@dataclass(frozen=True)
class UlyssesExchange:
    """The all-to-all on one rank."""

    setting: Setting

    def exchange(self, item: Collective, parts: Sequence[torch.Tensor], *, to_heads: bool) -> Exchange:
        """Exchange (sequence, batch, width) tensors in one all-to-all.

        ``to_heads``: from all heads to u times the positions; otherwise back.
        """
        ranks = int(self.setting.shape.ulysses)
        sent = [_heads_apart(part, ranks) if to_heads else _positions_apart(part, ranks) for part in parts]
        widths = [part.shape[-1] for part in sent]
        out = torch.cat(sent, -1)
        came = torch.empty_like(out)
        yield self.setting.communicator.start(item, out, ACTIVATION_BYTES, out=came)
        put = _positions_together if to_heads else _heads_together
        return tuple(put(part) for part in came.split(widths, -1))


def _heads_apart(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """Split heads by rank: (sequence, batch, width) → (ranks, sequence, batch, width/ranks)."""
    return x.unflatten(-1, (ranks, -1)).permute(2, 0, 1, 3)


def _heads_together(x: torch.Tensor) -> torch.Tensor:
    return x.permute(1, 2, 0, 3).flatten(2)


def _positions_apart(x: torch.Tensor, ranks: int) -> torch.Tensor:
    """Split positions by rank: (sequence, batch, width) → (ranks, sequence/ranks, batch, width)."""
    return x.unflatten(0, (ranks, -1))


def _positions_together(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(0, 1).contiguous()
