"""Images of a workload: how many a sequence has, and how the patches of one lie.

All images are alike: a grid as square as its number of patches allows, of whole merged squares. An encoder meets the
patches square by square: those that become one row of text together are neighbours, and the squares of one attention
window follow one another. A sequence begins with the rows of its images, text follows.
"""

from dataclasses import dataclass
from math import isqrt


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


def _pieces(length: int, side: int) -> list[int]:
    return [min(side, length - at) for at in range(0, length, side)]
