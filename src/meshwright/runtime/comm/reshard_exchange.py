"""Move activations, or their gradients, from the ranks of one layout to those of another by messages in pieces.

Every rank knows all transfers of a change of layout (``program/reshard.py``); it sends its pieces, receives those it
needs, and copies what it keeps. Values are (positions, sequences, hidden).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from meshwright.program.context_parallel.positions_and_masks import Stretch, Stretches
from meshwright.program.layouts.activation_transfers import (
    HeldActivations,
    Transfer,
    held_between_blocks,
    length,
    places_in,
)
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.program_parts import ProgramParts
from meshwright.program.reshard import Reshard, Way, way_transfers
from meshwright.runtime.comm.communicator import Communicator, Work


class Piece(NamedTuple):
    """A piece of a rank's value: runs of its positions of a range of its sequences."""

    peer: int
    positions: Stretches
    sequences: Stretch

    @property
    def tokens(self) -> int:
        """Tokens of the piece."""
        return sum(map(length, self.positions)) * length(self.sequences)

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """Return a contiguous copy of the piece."""
        rows = value[:, slice(*self.sequences)]
        return torch.cat([rows[start:stop] for start, stop in self.positions]).contiguous()

    def put(self, value: torch.Tensor, piece: torch.Tensor) -> None:
        """Copy the piece to its place in a value."""
        at = 0
        for start, stop in self.positions:
            value[start:stop, slice(*self.sequences)] = piece[at : at + stop - start]
            at += stop - start


PieceWork = tuple[Piece, torch.Tensor, Work]


@dataclass(frozen=True)
class RankExchange:
    """One rank's share of a change of layout in one direction.

    ``gives`` go to other ranks, ``takes`` come from them; ``keeps`` are pieces of its old value and their places in the
    new one, which has ``tokens`` positions of ``sequences`` sequences.
    """

    gives: tuple[Piece, ...]
    takes: tuple[Piece, ...]
    keeps: tuple[tuple[Piece, Piece], ...]
    tokens: int
    sequences: int

    def post(self, communicator: Communicator, like: torch.Tensor, what: str) -> list[PieceWork]:
        """Start to receive the pieces; ``like`` is a value of the same width."""
        found = []
        for piece in self.takes:
            rows = sum(map(length, piece.positions))
            memory = like.new_empty((rows, length(piece.sequences), like.shape[-1]))
            found.append((piece, memory, communicator.receive(memory, piece.peer, what)))
        return found

    def send(
        self, communicator: Communicator, value: torch.Tensor, what: str
    ) -> list[tuple[Work, torch.Tensor]]:
        """Start to send the pieces; the tensors must be held until their work has ended."""
        found = []
        for piece in self.gives:
            size = ACTIVATION_BYTES * value.shape[-1] * piece.tokens
            tensor = piece.of(value)
            found.append((communicator.send(tensor, piece.peer, what, size), tensor))
        return found

    def assemble(
        self, pieces: Sequence[PieceWork], like: torch.Tensor, old: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Wait for the pieces and return the new value; ``old`` has what the rank keeps."""
        value = like.new_empty((self.tokens, self.sequences, like.shape[-1]))
        for before, behind in self.keeps:
            assert old is not None, "what is kept is in the old value"
            behind.put(value, before.of(old))
        for piece, memory, work in pieces:
            work.wait()
            piece.put(value, memory)
        return value

    def run(self, communicator: Communicator, value: torch.Tensor, what: str) -> torch.Tensor:
        """Return a value in the new layout, exchanged among the ranks of one pipeline rank."""
        pieces = self.post(communicator, value, what)
        going = self.send(communicator, value, what)
        new = self.assemble(pieces, value, value)
        for work, _ in going:
            work.wait()
        return new


@dataclass(frozen=True)
class PendingPieces:
    """A message that is received in pieces."""

    exchange: RankExchange
    pieces: Sequence[PieceWork]
    like: torch.Tensor

    def result(self) -> torch.Tensor:
        """Wait for the message and return it."""
        return self.exchange.assemble(self.pieces, self.like)


def rank_exchange(parts: ProgramParts, reshard: Reshard, way: Way, rank: int) -> RankExchange:
    """Return a rank's share of a change of layout."""
    before, behind = (reshard.source, reshard.target)[:: 1 if way == "F" else -1]
    old, new = (held_between_blocks(parts[part], rank) for part in (before, behind))
    found = way_transfers(parts, reshard, way)
    kept = [t for t in found if t.source == t.target == rank]
    return RankExchange(
        gives=tuple(_piece(t, t.target, old) for t in found if rank == t.source != t.target),
        takes=tuple(_piece(t, t.source, new) for t in found if rank == t.target != t.source),
        keeps=tuple((_piece(t, rank, old), _piece(t, rank, new)) for t in kept),
        tokens=sum(map(length, new.positions)),
        sequences=length(new.sequences),
    )


def _piece(transfer: Transfer, peer: int, held: HeldActivations) -> Piece:
    """Return where a transfer lies in what a rank holds."""
    first = held.sequences[0]
    sequences = transfer.sequences[0] - first, transfer.sequences[1] - first
    return Piece(peer, places_in(held.positions, transfer.positions), sequences)
