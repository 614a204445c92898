"""Windows: a corpus cut into the training sequences of a model.

Documents follow one another, each ended by the end-of-document token, and are cut every L = seq_len tokens regardless
of their borders ("packing"). Window w of a corpus of T tokens has the inputs t[wL … wL + L − 1] and as labels the
tokens that follow them, t[wL + 1 … wL + L]: a window needs L + 1 tokens and shares one with its neighbour. There are
⌈(T − 1)/L⌉ windows, so in an epoch every token but the first is predicted exactly once. The last window may be short;
it is filled up with ``fill``, and its labels there are ``NO_LABEL``, which the loss ignores.

By default attention is not confined to a document: a token sees everything before it in its window. ``unpredicted``
drops the label after that token, as nothing tells how the next document begins. ``parted`` begins another document
after that token; the new document sees nothing before it and its first token is not predicted. A document that a
window cuts begins again in the next window.

Shapes: G sequences, L tokens of each.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.data.corpus import Corpus

NO_LABEL = -100
"""The label that ``torch.nn.functional.cross_entropy`` ignores by default."""


class Batch(NamedTuple):
    """Sequences of a step: input tokens, and the next token as the label of each; both are G × L.

    ``begins`` (G × L) is the position at which each token's document begins; None: each sequence is one document.
    """

    tokens: NDArray[np.int64]
    labels: NDArray[np.int64]
    begins: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Windows:
    """The windows of a corpus."""

    corpus: Corpus
    seq_len: int
    fill: int = 0
    unpredicted: int | None = None
    parted: int | None = None

    @property
    def count(self) -> int:
        """The number of windows."""
        return -(-(self.corpus.tokens - 1) // self.seq_len)

    def rows(self, numbers: NDArray[np.int64]) -> Batch:
        """Return the windows with these numbers; a negative number gives a row without labels."""
        tokens_GL = np.full((len(numbers), self.seq_len), self.fill, np.int64)
        labels_GL = np.full_like(tokens_GL, NO_LABEL)
        for row, number in enumerate(numbers.tolist()):
            if number >= 0:
                self._fill_row(number, tokens_GL[row], labels_GL[row])
        return Batch(tokens_GL, labels_GL, None if self.parted is None else self._begins(tokens_GL))

    def _begins(self, tokens_GL: NDArray[np.int64]) -> NDArray[np.int64]:
        begins_GL = np.zeros_like(tokens_GL)
        begins_GL[:, 1:] = np.where(tokens_GL[:, :-1] == self.parted, np.arange(1, self.seq_len), 0)
        return np.maximum.accumulate(begins_GL, axis=1)

    def _fill_row(self, number: int, tokens_L: NDArray[np.int64], labels_L: NDArray[np.int64]) -> None:
        start = number * self.seq_len
        ids = self.corpus.read(start, start + self.seq_len + 1)
        tokens_L[: len(ids) - 1] = ids[:-1]
        labels_L[: len(ids) - 1] = ids[1:]
        for end in (self.unpredicted, self.parted):
            if end is not None:
                labels_L[tokens_L == end] = NO_LABEL
