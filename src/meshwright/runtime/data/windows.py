"""Windows: a corpus cut into the sequences that a model is trained on.

Documents stand one behind the other, each ended by the end-of-document token, and are cut every L = seq_len tokens
whatever they say ("packing"). Window w of a corpus of T tokens has the inputs t[wL … wL + L − 1] and as labels the
tokens that follow them, t[wL + 1 … wL + L]: a window needs L + 1 tokens and shares one with its neighbour. There are
⌈(T − 1)/L⌉ windows, so in an epoch every token but the first is predicted once and none twice. The last window may be
short; it is filled up with ``fill`` and its labels there are ``NO_LABEL``, which the loss leaves out.

Attention is not confined to a document: a token sees what stands before it in its window. With ``unpredicted`` the
label behind that token is left out: nothing says how a next document begins. With ``parted`` another document begins
behind that token, which sees nothing of what is before it, and is not predicted from it. A document that a window cuts
begins again in the next one.

Shapes: G sequences, L tokens of each.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.data.corpus import Corpus

NO_LABEL = -100
"""``torch.nn.functional.cross_entropy`` leaves out this label unless it is told another."""


class Batch(NamedTuple):
    """Sequences of a step: the inputs, and the token that each of them is to predict; both are G × L.

    ``begins`` (G × L) is the position at which each token's document begins; None: each sequence is one.
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
        """How many there are."""
        return -(-(self.corpus.tokens - 1) // self.seq_len)

    def rows(self, numbers: NDArray[np.int64]) -> Batch:
        """The windows of these numbers; a negative number gives a row that predicts nothing."""
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
