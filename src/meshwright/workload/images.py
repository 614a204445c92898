"""Images of a workload: how many a sequence has, and how the patches of one lie.

All images are alike: a grid as square as its number of patches allows, of whole merged squares. An encoder meets the
patches square by square: those that become one row of text together are neighbours, and the squares of one attention
window follow one another. A sequence begins with the rows of its images, text follows.
"""

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Images:
    """``per_sequence`` images of ``tokens`` patches each, counted before they are merged."""

    per_sequence: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.per_sequence}x{self.tokens}"

    @property
    def patches(self) -> int:
        """Patches of a sequence."""
        return self.per_sequence * self.tokens

    def rows(self, merge: int) -> int:
        """Return the rows of a sequence that are images: squares of ``merge`` × ``merge`` patches."""
        return self.patches // merge**2

    def grid(self, merge: int) -> tuple[int, int]:
        """Return rows and columns of an image's patches, both multiples of ``merge``: the squarest there are."""
        squares = self.tokens // merge**2
        rows = next(rows for rows in range(isqrt(squares), 0, -1) if squares % rows == 0)
        return rows * merge, squares // rows * merge

    def windows(self, merge: int, side: int) -> tuple[int, ...]:
        """Return the patches of each attention window of an image, in order; windows at an edge may be smaller."""
        rows, columns = (_pieces(length, side) for length in self.grid(merge))
        return tuple(height * width for height in rows for width in columns)

    def attended(self, merge: int, side: int | None) -> float:
        """Return the mean number of patches that a patch attends to: its image's, or those of its window."""
        if side is None:
            return float(self.tokens)
        return sum(patches**2 for patches in self.windows(merge, side)) / self.tokens

    def spans(self, merge: int, side: int | None) -> tuple[int, ...]:
        """Return lengths of consecutive patches that attend to each other, over all images: windows or whole images."""
        return (self.windows(merge, side) if side is not None else (self.tokens,)) * self.per_sequence

    def window_order(self, merge: int, side: int) -> Ints:
        """Return for each merged square of a sequence, in the encoder's order, its place in the decoder's order.

        The decoder has the squares of an image in raster order; ``side`` is a window's, in patches.
        """
        rows, columns = (length // merge for length in self.grid(merge))
        raster = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
        step = side // merge
        order = np.concatenate(
            [
                raster[row : row + step, column : column + step].ravel()
                for row in range(0, rows, step)
                for column in range(0, columns, step)
            ]
        )
        return (np.arange(self.per_sequence)[:, None] * order.size + order).ravel()

    def patch_places(self, merge: int, side: int) -> Ints:
        """Return row and column of each patch of a sequence within its image, in the encoder's order: (2, patches)."""
        columns = self.grid(merge)[1] // merge
        square = self.window_order(merge, side) % (self.tokens // merge**2)
        inside = np.arange(merge)
        row = (square // columns * merge)[:, None, None] + inside[:, None]
        column = (square % columns * merge)[:, None, None] + inside
        return np.stack([axis.ravel() for axis in np.broadcast_arrays(row, column)])

    def positions(self, merge: int, seq_len: int) -> Ints:
        """Return time, row and column of every position of a sequence of images and text: (3, seq_len).

        An image has one time, and rows and columns that begin there; what follows begins behind the largest of all
        three. A text's three positions are equal.
        """
        rows, columns = (length // merge for length in self.grid(merge))
        first = np.arange(self.per_sequence)[:, None, None] * max(rows, columns)
        row, column = np.arange(rows)[:, None], np.arange(columns)
        axes = np.broadcast_arrays(first, first + row, first + column)
        images = np.stack([axis.ravel() for axis in axes])
        text = np.arange(seq_len - images.shape[1]) + self.per_sequence * max(rows, columns)
        return np.concatenate([images, np.broadcast_to(text, (3, text.size))], axis=1)


def _pieces(length: int, side: int) -> list[int]:
    return [min(side, length - at) for at in range(0, length, side)]
