"""Documents packed into sequences: their lengths, and attention within each document only.

The data are documents of these lengths, in turn, one behind the other, cut every ``seq_len`` tokens. Attention is
causal within a document; one that a cut parts begins again in the next sequence. Where their lengths together divide
``seq_len`` none is cut; otherwise a cut may fall anywhere.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Documents:
    """The lengths of documents, in tokens, in turn."""

    lengths: tuple[int, ...]

    def __str__(self) -> str:
        return str(list(self.lengths)) if len(self.lengths) > 1 else str(*self.lengths)

    @property
    def total(self) -> int:
        """Tokens of all of them."""
        return sum(self.lengths)

    def uncut(self, seq_len: int) -> bool:
        """Every sequence has whole documents."""
        return seq_len % self.total == 0
