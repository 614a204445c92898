"""A rank's pieces of a sequence, and how linear-attention states pass from piece to piece.

A piece is a contiguous range of positions. With documents, a sequence's part of a piece falls into *runs*, one for each
document: the first continues a document that began before the piece, the last may leave a state for later pieces. Every
rank knows all pieces and document borders, so only states are exchanged
(``program/context_parallel/linear_attention_collectives.py``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.program.context_parallel.linear_attention_collectives import most_pieces
from meshwright.program.context_parallel.positions_and_masks import Stretch, Stretches, rank_stretches
from meshwright.runtime.batch.document_packing import Packing
from meshwright.runtime.kernels.kernel import Setting
from meshwright.runtime.kernels.linear_attention.block_recurrence import Decay


@dataclass(frozen=True)
class DocumentRun:
    """Rows of some sequences that belong to one document, in piece number ``piece`` of this rank."""

    sequences: slice
    rows: slice
    piece: int
    enters: bool
    leaves: bool

    @property
    def place(self) -> tuple[slice, slice, slice]:
        """The run's index into (batch, heads, positions, …)."""
        return self.sequences, slice(None), self.rows


@dataclass(frozen=True)
class RankSequencePieces:
    """The pieces of one layer on one rank; ``packing``: within documents."""

    setting: Setting
    decay: Decay
    packing: Packing | None = None

    @cached_property
    def everywhere(self) -> Sequence[Stretches]:
        """The position ranges of each cp rank."""
        shape, context = self.setting.shape, self.setting.context
        return [
            rank_stretches(int(shape.seq_len), int(shape.cp), int(shape.ulysses), context.pieces, place)
            for place in range(int(shape.cp))
        ]

    @property
    def mine(self) -> Stretches:
        """The position ranges of this rank."""
        return self.everywhere[self.setting.cp_rank]

    def no_states(self, like: torch.Tensor) -> torch.Tensor:
        """Return zero states for all pieces that a rank may have: (pieces, batch, heads, head_dim, head_dim)."""
        most = int(most_pieces(self.setting.shape, self.setting.part.mode))
        batch, heads, _, width = like.shape
        return like.new_zeros((most, batch, heads, width, width))

    def runs(self, sequences: int) -> Iterator[DocumentRun]:
        """Yield all rows of this rank, document by document."""
        at = 0
        for piece, (start, stop) in enumerate(self.mine):
            if self.packing is None:
                yield DocumentRun(
                    slice(0, sequences), slice(at, at + stop - start), piece, enters=True, leaves=True
                )
            else:
                yield from self._of_documents(self.packing, piece, (start, stop), at - start)
            at += stop - start

    def _of_documents(
        self, packing: Packing, piece: int, stretch: Stretch, shift: int
    ) -> Iterator[DocumentRun]:
        for sequence, documents in enumerate(packing.documents):
            for begin, end in documents:
                first, last = max(begin, stretch[0]), min(end, stretch[1])
                if first < last:
                    yield DocumentRun(
                        slice(sequence, sequence + 1),
                        slice(first + shift, last + shift),
                        piece,
                        enters=begin < stretch[0],
                        leaves=end > stretch[1],
                    )

    def entered(self, gathered: torch.Tensor) -> torch.Tensor:
        """Return the state that enters each piece of this rank: the decayed sum of the states of earlier pieces."""
        return self._summed(gathered, lambda mine, other: self._passed(other, mine))

    def left(self, gathered: torch.Tensor) -> torch.Tensor:
        """Return the gradient of each piece's leaving state, from those of the states that enter later pieces."""
        return self._summed(gathered, self._passed)

    def _summed(
        self, gathered: torch.Tensor, factor: Callable[[Stretch, Stretch], torch.Tensor]
    ) -> torch.Tensor:
        by_rank = gathered.unflatten(0, (len(self.everywhere), -1))
        found = torch.zeros_like(by_rank[0])
        for total, mine in zip(found, self.mine, strict=False):
            for states, stretches in zip(by_rank, self.everywhere, strict=True):
                for state, other in zip(states, stretches, strict=False):
                    total += state * factor(mine, other)
        return found

    def _passed(self, before: Stretch, behind: Stretch) -> torch.Tensor:
        """Return the fraction of a piece's state that enters another one: (batch or 1, heads, 1, 1).

        It is 0 if the other piece is not later.
        """
        between = torch.tensor(behind[0] - before[1], device=self.decay.rates.device)
        part = self.decay.after(between)[None, :, None, None]
        if self.packing is None:
            return part
        return part * (self.packing.begins[:, behind[0]] < before[1]).to(part)[:, None, None, None]
