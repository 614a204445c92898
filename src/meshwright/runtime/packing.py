"""The documents that the sequences of a micro-batch are packed with, as every rank of cp knows them.

They come with the batch: ``begins`` says of every position at which one its document begins. Which tiles of attention
there are follows from them, sequence by sequence; positions count from a document's begin.
"""

from dataclasses import dataclass, field
from functools import cached_property

import torch

from meshwright.program.context import Stretches, Tile, tiles

Seen = tuple[slice, Tile]
"""Sequences of a micro-batch, and a tile that they have."""


@dataclass(frozen=True)
class Packing:
    """``begins``: (sequences, positions), of whole sequences."""

    begins: torch.Tensor
    _tiles: dict[tuple[Stretches, Stretches, int | None], tuple[Seen, ...]] = field(default_factory=dict)

    def positions(self, held: torch.Tensor) -> torch.Tensor:
        """The places in their documents of the positions that a rank holds: (positions, sequences)."""
        return (held - self.begins[:, held]).t()

    def foreign(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Which columns lie before the documents of rows: (sequences, rows, columns)."""
        return columns < self.begins[:, rows, None]

    def between(self, queries: Stretches, keys: Stretches, window: int | None) -> tuple[Seen, ...]:
        """The tiles in which something is seen."""
        key = (queries, keys, window)
        if key not in self._tiles:
            self._tiles[key] = tuple(
                (slice(at, at + 1), tile)
                for at, documents in enumerate(self.documents)
                for tile in tiles(queries, keys, window, documents)
            )
        return self._tiles[key]

    @cached_property
    def documents(self) -> tuple[Stretches, ...]:
        """Those of each sequence."""
        length = self.begins.shape[1]
        found = []
        for row in self.begins.tolist():
            first = sorted(set(row))
            found.append(tuple(zip(first, [*first[1:], length], strict=True)))
        return tuple(found)
