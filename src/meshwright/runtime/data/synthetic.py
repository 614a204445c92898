"""Tokens for a run without data: a noisy chain whose best possible loss is known.

All A = min(vocab, ``alphabet``) tokens stand in a random circle that the seed chooses. A sequence begins anywhere and
goes on to the next token of the circle with probability 1 − noise, else to any of the A tokens. The next token so has
probability 1 − noise + noise/A if it is the circle's and noise/A each if not, and the loss of a model that has learnt
it all, per token in nats, is

    H = −(1 − noise + noise/A)·ln(1 − noise + noise/A) − (A − 1)·(noise/A)·ln(noise/A),

while one that has learnt only which tokens there are has ln A. Nothing longer than two tokens is there to be learnt.

``documents`` lie in turn in every sequence, from anywhere in their list unless they fill sequences; the chain goes on
from one to the next, and their first tokens are not predicted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.data.batches import samples
from meshwright.runtime.data.order import permutation
from meshwright.runtime.data.windows import NO_LABEL, Batch
from meshwright.workload.documents import Documents

CIRCLE, TRAINING, HELD_OUT = range(3)
"""What a stream of random numbers is for: they must not be the same."""


@dataclass(frozen=True, kw_only=True)
class SyntheticBatches:
    """Batches without end of a noisy chain; ``stream`` keeps training and held-out sequences apart."""

    vocab: int
    seq_len: int
    global_batch: int
    seed: int
    noise: float = 0.1
    alphabet: int = 256
    stream: int = TRAINING
    documents: Documents | None = None

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
        return -right * log(right) - spread

    def rows(self, step: int, indices: Sequence[int]) -> Batch:
        """The sequences of these indices of the batch of a step."""
        circle = permutation(self.tokens_used, self.seed, CIRCLE)
        wanted = samples(self, step, indices).tolist()
        ids = self._rows(self._sequence(circle, sample) for sample in wanted)
        tokens, labels = ids[:, :-1].copy(), ids[:, 1:].copy()
        if self.documents is None:
            return Batch(tokens, labels)
        begins = self._rows(self._begins(self.documents, sample) for sample in wanted)
        labels[begins[:, 1:] == np.arange(1, self.seq_len + 1)] = NO_LABEL
        return Batch(tokens, labels, begins[:, :-1].copy())

    def _rows(self, sequences: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Sequences of seq_len + 1 places each, perhaps none."""
        return np.array(list(sequences), np.int64).reshape(-1, self.seq_len + 1)

    def _begins(self, documents: Documents, sample: int) -> NDArray[np.int64]:
        """Where the documents of a sequence begin, and of what follows it."""
        place = int(self._raw(sample, 2 * self.seq_len + 3)[-1])
        first = 0 if documents.uncut(self.seq_len) else place % documents.total
        return document_begins(documents, self.seq_len + 1, first)

    def _raw(self, sample: int, count: int) -> NDArray[np.uint64]:
        """Random words of a sequence."""
        seeds = np.random.SeedSequence((self.seed, self.stream, sample))
        return np.random.Philox(seeds).random_raw(count)

    def _sequence(self, circle: NDArray[np.int64], sample: int) -> NDArray[np.int64]:
        """One sequence of seq_len + 1 tokens: from its first one, and from each jump on, the circle is walked."""
        length = self.seq_len + 1
        raw = self._raw(sample, 2 * length)
        jumps = (raw[:length] >> np.uint64(11)) * 2.0**-53 < self.noise
        targets = (raw[length:] % np.uint64(self.tokens_used)).astype(np.int64)
        last_jump = np.maximum.accumulate(np.where(jumps, np.arange(length), 0))
        return circle[(targets[last_jump] + np.arange(length) - last_jump) % self.tokens_used]


def document_begins(documents: Documents, seq_len: int, first: int) -> NDArray[np.int64]:
    """The position at which the document of each position of a sequence begins, ``first`` tokens into the list."""
    lengths, row = np.array(documents.lengths), np.arange(seq_len)
    ends, place = np.cumsum(lengths), (first + row) % documents.total
    which = np.searchsorted(ends, place, side="right")
    return np.maximum(0, row - (place - (ends - lengths)[which]))
