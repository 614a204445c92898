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

A model with a text encoder reads the first E = encoder_tokens of a window there; the next L are the decoder's, and of
these the labels (prefix language modelling; Raffel et al., arXiv 1910.10683, section 3.2.1). Windows then begin every
E + L tokens, there are ⌈(T − 1 − E)/(E + L)⌉ of them, and the last one's decoder part may be short.

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
    ``encoder`` is what an encoder reads: token ids (G × encoder_tokens), or patches (G × patches × elements).
    """

    tokens: NDArray[np.int64]
    labels: NDArray[np.int64]
    begins: NDArray[np.int64] | None = None
    encoder: NDArray[np.int64] | NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Windows:
    """The windows of a corpus."""

    corpus: Corpus
    seq_len: int
    fill: int = 0
    unpredicted: int | None = None
    parted: int | None = None
    encoder_tokens: int = 0

    @property
    def least_tokens(self) -> int:
        """Return the tokens of the shortest window: what an encoder reads, a token, and one that follows it."""
        return self.encoder_tokens + 2

    @property
    def count(self) -> int:
        """The number of windows."""
        return max(
            0, -(-(self.corpus.tokens - self.least_tokens + 1) // (self.encoder_tokens + self.seq_len))
        )

    def rows(self, numbers: NDArray[np.int64]) -> Batch:
        """Return the windows with these numbers; a negative number gives a row without labels."""
        tokens_GL = np.full((len(numbers), self.seq_len), self.fill, np.int64)
        labels_GL = np.full_like(tokens_GL, NO_LABEL)
        encoder_GE = np.full((len(numbers), self.encoder_tokens), self.fill, np.int64)
        for row, number in enumerate(numbers.tolist()):
            if number >= 0:
                self._fill_row(number, tokens_GL[row], labels_GL[row], encoder_GE[row])
        begins_GL = None if self.parted is None else self._begins(tokens_GL)
        return Batch(tokens_GL, labels_GL, begins_GL, encoder_GE if self.encoder_tokens else None)

    def _begins(self, tokens_GL: NDArray[np.int64]) -> NDArray[np.int64]:
        begins_GL = np.zeros_like(tokens_GL)
        begins_GL[:, 1:] = np.where(tokens_GL[:, :-1] == self.parted, np.arange(1, self.seq_len), 0)
        return np.maximum.accumulate(begins_GL, axis=1)

    def _fill_row(
        self,
        number: int,
        tokens_L: NDArray[np.int64],
        labels_L: NDArray[np.int64],
        encoder_E: NDArray[np.int64],
    ) -> None:
        length = self.encoder_tokens + self.seq_len
        whole = self.corpus.read(number * length, (number + 1) * length + 1)
        encoder_E[:], ids = np.split(whole, [self.encoder_tokens])
        tokens_L[: len(ids) - 1] = ids[:-1]
        labels_L[: len(ids) - 1] = ids[1:]
        for end in (self.unpredicted, self.parted):
            if end is not None:
                labels_L[tokens_L == end] = NO_LABEL
