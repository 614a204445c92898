"""The tokens of a workload that a model's encoder processes."""

from dataclasses import dataclass

from meshwright.workload.images import Images


@dataclass(frozen=True, slots=True)
class EncoderLengths:
    """An encoder's ``tokens`` per sequence of text: of a second text, or the patches of its ``images``."""

    tokens: int = 0
    images: Images | None = None

    def attended(self, merge: int, side: int | None) -> float:
        """Return the mean number of tokens that one attends to: all, its image's, or those of its window."""
        return float(self.tokens) if self.images is None or not merge else self.images.attended(merge, side)


NO_ENCODER = EncoderLengths()
