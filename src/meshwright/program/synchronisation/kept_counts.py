"""Counts of values that a codec keeps, and widths of the indices that say where they lie."""

from fractions import Fraction
from math import ceil

INDEX_BYTES = (1, 2, 4, 8)


def share_of(share: float, elements: int) -> int:
    """Return ⌈share·elements⌉; the share is the decimal number that the plan writes, not its binary neighbour."""
    return ceil(Fraction(str(share)) * elements)


def kept_of(share: float, elements: int) -> int:
    """Return the number of elements kept of a stretch: ⌈share·elements⌉, at least 1 and at most all."""
    return min(elements, max(1, share_of(share, elements)))


def index_bytes(places: int) -> int:
    """Return the fewest bytes of 1, 2, 4 and 8 that hold the index of one of ``places``."""
    return next(width for width in INDEX_BYTES if places <= 256**width)


def chunk_counts(elements: int, chunk: int, keep: int) -> tuple[int, int, int]:
    """Return the number of whole chunks, the length of the last, shorter one (or 0), and the kept values of all."""
    whole, rest = divmod(elements, chunk)
    return whole, rest, whole * min(keep, chunk) + min(keep, rest)
