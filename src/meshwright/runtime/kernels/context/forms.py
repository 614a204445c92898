"""What a form of context parallelism does while a rank attends, and the form of one that has all of a sequence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self

import torch

from meshwright.program.context import Stretches, ring_stretches
from meshwright.program.items import Collective
from meshwright.runtime.kernels.attention_core import Triple
from meshwright.runtime.kernels.context.tiled import Partial, Rows, Tiled
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.packing import Packing

Kept = dict[str, torch.Tensor]
Beside = Sequence[Collective]


@dataclass(frozen=True)
class Attended:
    """The output of a rank's queries, what was ``kept`` of its rows, and the output's gradient."""

    out: torch.Tensor
    kept: Kept
    gradient: torch.Tensor


class Form(Protocol):
    """Attention of one layer on one rank. Tensors are (batch, heads, sequence, width); ``heads`` are q, k and v."""

    def within(self, packing: Packing | None) -> Self:
        """The same for sequences that are packed."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """The output, and what the gradient needs besides: ``statistic`` or ``scores``."""

    def gradients(self, heads: Triple, of: Attended, beside: Beside) -> Triple:
        """Gradients of this rank's queries, keys and values."""


@dataclass(frozen=True)
class Part:
    """What a rank of a ring has of every sequence while it attends."""

    tiled: Tiled

    def within(self, packing: Packing | None) -> Self:
        """The same for sequences that are packed: what is exchanged is the same, whether it is seen or not."""
        return self if packing is None else replace(self, tiled=replace(self.tiled, packing=packing))

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

    def rows(self, of: Attended) -> Rows:
        """What gradients of a tile need to know of this rank's rows."""
        return Rows(of.gradient, of.out, of.kept["statistic"])


@dataclass(frozen=True)
class Alone(Part):
    """All of the sequence is here."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Nothing is exchanged."""
        made = Partial()
        self.tiled.attend(made, heads, self.mine, self.mine)
        out, statistic = made.complete(heads[0])
        return out, {"statistic": statistic}

    def gradients(self, heads: Triple, of: Attended, beside: Beside) -> Triple:
        """Nothing is exchanged."""
        return self.tiled.gradients(heads, self.rows(of), self.mine)
