"""Document boundaries of the packed sequences in a micro-batch; every cp rank knows all of them.

The batch carries them: ``begins`` gives, for each position, the position at which its document begins. They determine
the attention tiles of each sequence. Position ids count from the begin of a document.
"""

from dataclasses import dataclass, field
from functools import cached_property

import torch

from meshwright.program.context_parallel.positions_and_masks import Stretches, Tile, tiles

Seen = tuple[slice, Tile]
"""A slice of sequences in a micro-batch, and an attention tile that these sequences compute."""


@dataclass(frozen=True)
class Packing:
    """Document boundaries of a micro-batch. ``begins``: (sequences, positions), of whole sequences."""

    begins: torch.Tensor
    _tiles: dict[tuple[Stretches, Stretches, int | None], tuple[Seen, ...]] = field(default_factory=dict)

    def positions(self, held: torch.Tensor) -> torch.Tensor:
        """Return each held position's offset in its document: (positions, sequences)."""
        return (held - self.begins[:, held]).t()

    def foreign(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Return a mask, true where a column lies before the row's document: (sequences, rows, columns)."""
        return columns < self.begins[:, rows, None]

    def between(self, queries: Stretches, keys: Stretches, window: int | None) -> tuple[Seen, ...]:
        """Return the attention tiles, per sequence, in which some query attends to some key."""
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
        """The (begin, end) spans of each sequence's documents."""
        length = self.begins.shape[1]
        found = []
        for row in self.begins.tolist():
            first = sorted(set(row))
            found.append(tuple(zip(first, [*first[1:], length], strict=True)))
        return tuple(found)
