"""Tokens for a run without data: a noisy chain whose best possible loss is known.

All A = min(vocab, ``alphabet``) tokens stand in a random circle that the seed chooses. A sequence begins anywhere and
goes on to the next token of the circle with probability 1 − noise, else to any of the A tokens. The next token so has
probability 1 − noise + noise/A if it is the circle's and noise/A each if not, and the loss of a model that has learnt
it all, per token in nats, is

    H = −(1 − noise + noise/A)·ln(1 − noise + noise/A) − (A − 1)·(noise/A)·ln(noise/A),

while one that has learnt only which tokens there are has ln A. Nothing longer than two tokens is there to be learnt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from meshwright.runtime.data.batches import samples
from meshwright.runtime.data.order import permutation
from meshwright.runtime.data.windows import Batch

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
        ids = np.array([self._sequence(circle, sample) for sample in wanted], np.int64)
        ids = ids.reshape(len(wanted), self.seq_len + 1)
        return Batch(ids[:, :-1].copy(), ids[:, 1:].copy())

    def _sequence(self, circle: NDArray[np.int64], sample: int) -> NDArray[np.int64]:
        """One sequence of seq_len + 1 tokens: from its first one, and from each jump on, the circle is walked."""
        length = self.seq_len + 1
        seeds = np.random.SeedSequence((self.seed, self.stream, sample))
        raw = np.random.Philox(seeds).random_raw(2 * length)
        jumps = (raw[:length] >> np.uint64(11)) * 2.0**-53 < self.noise
        targets = (raw[length:] % np.uint64(self.tokens_used)).astype(np.int64)
        last_jump = np.maximum.accumulate(np.where(jumps, np.arange(length), 0))
        return circle[(targets[last_jump] + np.arange(length) - last_jump) % self.tokens_used]
