"""What a form of context parallelism does while a rank attends, and the form of one that has all of a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from meshwright.program.context import Stretches, ring_stretches
from meshwright.program.items import Collective
from meshwright.runtime.kernels.attention_core import Triple
from meshwright.runtime.kernels.context.tiled import Partial, Tiled
from meshwright.runtime.kernels.kernel import Setting

Kept = dict[str, torch.Tensor]


class Form(Protocol):
    """Attention of one layer on one rank. Tensors are (batch, heads, sequence, width)."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beside: Sequence[Collective]
    ) -> tuple[torch.Tensor, Kept]:
        """The output, and what the gradient needs besides: ``statistic`` or ``scores``."""

    def gradients(
        self,
        g: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        kept: Kept,
        beside: Sequence[Collective],
    ) -> Triple:
        """Gradients of this rank's queries, keys and values."""


@dataclass(frozen=True)
class Part:
    """What a rank of a ring has of every sequence while it attends."""

    tiled: Tiled

    @property
    def setting(self) -> Setting:
        """Of the layer."""
        return self.tiled.setting

    @property
    def ranks(self) -> int:
        """Ranks that have a part of the sequence each."""
        return int(self.setting.shape.ring)

    def of(self, place: int) -> Stretches:
        """What a rank has."""
        context, shape = self.setting.context, self.setting.shape
        return ring_stretches(int(shape.seq_len), self.ranks, context.pieces, place % self.ranks)

    @cached_property
    def mine(self) -> Stretches:
        """What this rank has."""
        return self.of(self.setting.ring_place)


@dataclass(frozen=True)
class Alone(Part):
    """All of the sequence is here."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beside: Sequence[Collective]
    ) -> tuple[torch.Tensor, Kept]:
        """Nothing is exchanged."""
        assert not beside
        made = Partial()
        self.tiled.attend(made, q, k, v, self.mine, self.mine)
        out, statistic = made.complete(q)
        return out, {"statistic": statistic}

    def gradients(
        self,
        g: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        kept: Kept,
        beside: Sequence[Collective],
    ) -> Triple:
        """Nothing is exchanged."""
        assert not beside
        return self.tiled.gradients(g, q, k, v, out, kept["statistic"], self.mine)
