"""A stretch: what a rank holds of one tensor."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """A tensor's whole tp or ep cut, or its flat ZeRO part without padding.

    ``matrices`` are (count, rows, columns) of a whole cut of two dims or more, where count is the product of the
    leading dims; None of vectors and of ZeRO parts. ``layer`` is None outside the layers.
    """

    name: str
    elements: int
    matrices: tuple[int, int, int] | None = None
    layer: int | None = None
