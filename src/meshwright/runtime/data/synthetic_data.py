"""Synthetic tokens for a run without data: a noisy chain whose lowest possible loss is known.

All A = min(vocab, ``alphabet``) tokens form a circle in a random order that the seed chooses. A sequence begins
anywhere; each next token follows the circle with probability 1 − noise, else it is any of the A tokens. The circle's
next token thus has probability 1 − noise + noise/A and every other one noise/A, and the loss of a model that has
learnt the chain is, per token in nats,

    H = −(1 − noise + noise/A)·ln(1 − noise + noise/A) − (A − 1)·(noise/A)·ln(noise/A),

while a model that has only learnt which tokens occur has ln A. No pattern is longer than two tokens.

``documents`` repeat in turn in every sequence and start anywhere in their list, unless they fill sequences exactly. The
chain continues from one to the next, and their first tokens are not predicted.

A text encoder reads another walk of the same chain. Images are patches of normal numbers that say nothing of the text:
behind them n = L − R + 1 tokens of a sequence with R image rows are predicted, the first of them from no other one, and
the least loss is ((n − 1)·H + ln A)/n.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.data.batches import samples
from meshwright.runtime.data.encoder_input import EncoderInput, blank_image_rows
from meshwright.runtime.data.epoch_order import permutation
from meshwright.runtime.data.sequence_windows import NO_LABEL, Batch
from meshwright.workload.packed_documents import Documents

CIRCLE, TRAINING, HELD_OUT = range(3)
"""Purposes of random streams, which must differ."""
OF_ENCODER = 3
"""Added to the purpose of a sequence: the stream of what the encoder reads for it."""


@dataclass(frozen=True, kw_only=True)
class SyntheticBatches:
    """Endless batches of a noisy chain; ``stream`` separates training from held-out sequences."""

    vocab: int
    seq_len: int
    global_batch: int
    seed: int
    noise: float = 0.1
    alphabet: int = 256
    stream: int = TRAINING
    documents: Documents | None = None
    encoder: EncoderInput | None = None

    @property
    def tokens_used(self) -> int:
        """Tokens of the circle."""
        return min(self.vocab, self.alphabet)

    @property
    def least_loss(self) -> float:
        """The loss per token, in nats, that no model can beat."""
        other = self.noise / self.tokens_used
        right = 1 - self.noise + other
        spread = (self.tokens_used - 1) * other * log(other) if other else 0.0
        of_chain = -right * log(right) - spread
        if self.encoder is None or not self.encoder.rows:
            return of_chain
        predicted = self.seq_len - self.encoder.rows + 1
        return ((predicted - 1) * of_chain + log(self.tokens_used)) / predicted

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """Return the sequences with these indices of a step's batch."""
        circle = permutation(self.tokens_used, self.seed, CIRCLE)
        numbers = samples(self, step, indices).tolist()
        length = self.seq_len + 1
        ids = self._rows(self._walk(circle, length, self._raw(sample, 2 * length)) for sample in numbers)
        tokens, labels = ids[:, :-1].copy(), ids[:, 1:].copy()
        if self.encoder is not None:
            blank_image_rows(tokens, labels, self.encoder.rows)
            read = self.encoder.empty(len(numbers))
            for row, sample in enumerate(numbers):
                read[row] = self._read_by_encoder(self.encoder, circle, sample)
            return Batch(tokens, labels, None, read)
        if self.documents is None:
            return Batch(tokens, labels)
        begins = self._rows(self._begins(self.documents, sample) for sample in numbers)
        labels[begins[:, 1:] == np.arange(1, self.seq_len + 1)] = NO_LABEL
        return Batch(tokens, labels, begins[:, :-1].copy())

    def _rows(self, sequences: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Stack sequences of seq_len + 1 places each into an array, which may have no row."""
        return np.array(list(sequences), np.int64).reshape(-1, self.seq_len + 1)

    def _begins(self, documents: Documents, sample: int) -> NDArray[np.int64]:
        """Return the begins of the documents in a sequence and the token after it."""
        place = int(self._raw(sample, 2 * self.seq_len + 3)[-1])
        first = 0 if documents.uncut(self.seq_len) else place % documents.total
        return document_begins(documents, self.seq_len + 1, first)

    def _raw(self, sample: int, count: int, *, of: int = 0) -> NDArray[np.uint64]:
        """Return random words of a sequence, or with ``of`` those of another purpose."""
        seeds = np.random.SeedSequence((self.seed, self.stream + of, sample))
        return np.random.Philox(seeds).random_raw(count)

    def _read_by_encoder(
        self, size: EncoderInput, circle: NDArray[np.int64], sample: int
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        """Return what the encoder reads for one sequence: token ids, or patches (patches, elements)."""
        if not size.elements:
            return self._walk(circle, size.tokens, self._raw(sample, 2 * size.tokens, of=OF_ENCODER))
        numbers = size.tokens * size.elements
        words = self._raw(sample, 2 * -(-numbers // 2), of=OF_ENCODER)
        return _normal(words)[:numbers].reshape(size.tokens, size.elements)

    def _walk(self, circle: NDArray[np.int64], length: int, raw: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return a sequence of tokens that walks the circle from its first token and from each jump."""
        jumps = _shares(raw[:length]) < self.noise
        targets = (raw[length:] % np.uint64(self.tokens_used)).astype(np.int64)
        last_jump = np.maximum.accumulate(np.where(jumps, np.arange(length), 0))
        return circle[(targets[last_jump] + np.arange(length) - last_jump) % self.tokens_used]


def _shares(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return random words as numbers from 0 up to 1."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _normal(words: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return as many standard normal numbers as there are random words, an even number (Box and Muller, 1958)."""
    radii, angles = np.split(_shares(words), 2)
    radii, angles = np.sqrt(-2 * np.log1p(-radii)), 2 * np.pi * angles
    return np.concatenate([radii * np.cos(angles), radii * np.sin(angles)]).astype(np.float32)


def document_begins(documents: Documents, seq_len: int, first: int) -> NDArray[np.int64]:
    """Return, for each position, the begin of its document; the sequence starts ``first`` tokens into the list."""
    lengths, row = np.array(documents.lengths), np.arange(seq_len)
    ends, place = np.cumsum(lengths), (first + row) % documents.total
    which = np.searchsorted(ends, place, side="right")
    return np.maximum(0, row - (place - (ends - lengths)[which]))
