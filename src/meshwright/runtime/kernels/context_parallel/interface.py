"""Interface of a context-parallel form's attention, and the form of a rank that holds whole sequences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Protocol, Self

import torch

from meshwright.program.context_parallel.positions_and_masks import Stretches, ring_stretches
from meshwright.program.pass_items import Collective
from meshwright.runtime.batch.document_packing import Packing
from meshwright.runtime.kernels.attention.scaled_dot_product import Triple
from meshwright.runtime.kernels.context_parallel.tiled_attention import Partial, Rows, TiledAttention
from meshwright.runtime.kernels.kernel import Setting

Kept = dict[str, torch.Tensor]
Beside = Sequence[Collective]


@dataclass(frozen=True)
class AttentionOutput:
    """The output of a rank's queries, the saved row statistics (``kept``), and the output's gradient."""

    out: torch.Tensor
    kept: Kept
    gradient: torch.Tensor


class ContextParallelForm(Protocol):
    """Attention of one layer on one rank. Tensors are (batch, heads, sequence, width); ``heads`` are q, k and v."""

    def within(self, packing: Packing | None) -> Self:
        """Return the form for packed sequences."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Return the output, and what else the gradient needs: ``statistic`` or ``scores``."""

    def gradients(self, heads: Triple, of: AttentionOutput, beside: Beside) -> Triple:
        """Return the gradients of this rank's queries, keys and values."""


@dataclass(frozen=True)
class RingMember:
    """The part of every sequence that a rank of the ring holds during attention."""

    tiled: TiledAttention

    def within(self, packing: Packing | None) -> Self:
        """Return the form for packed sequences; the exchanges stay the same, even for keys that nobody attends to."""
        return self if packing is None else replace(self, tiled=replace(self.tiled, packing=packing))

    @property
    def setting(self) -> Setting:
        """The layer's setting."""
        return self.tiled.setting

    @property
    def ranks(self) -> int:
        """The number of ranks that hold a part of the sequence each."""
        return int(self.setting.shape.ring)

    def of(self, place: int) -> Stretches:
        """Return the position ranges of the rank at a place of the ring."""
        context, shape = self.setting.context, self.setting.shape
        return ring_stretches(int(shape.seq_len), self.ranks, context.pieces, place % self.ranks)

    @cached_property
    def mine(self) -> Stretches:
        """The position ranges of this rank."""
        return self.of(self.setting.ring_place)

    def rows(self, of: AttentionOutput) -> Rows:
        """Return the data of this rank's rows that gradients of a tile need."""
        return Rows(of.gradient, of.out, of.kept["statistic"])


def load_kernel(path: str) -> Callable[[TiledAttention], ContextParallelForm]:
    """Return the class that a form names as its kernel: ``module:class``."""
    module, _, name = path.partition(":")
    kernel: Callable[[TiledAttention], ContextParallelForm] = getattr(import_module(module), name)
    return kernel


@dataclass(frozen=True)
class WholeSequence(RingMember):
    """Attention of a rank that holds whole sequences."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Attend without communication."""
        made = Partial()
        self.tiled.attend(made, heads, self.mine, self.mine)
        out, statistic = made.complete(heads[0])
        return out, {"statistic": statistic}

    def gradients(self, heads: Triple, of: AttentionOutput, beside: Beside) -> Triple:
        """Return the gradients of queries, keys and values, without communication."""
        return self.tiled.gradients(heads, self.rows(of), self.mine)
