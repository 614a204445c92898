"""The load of one replica and its limits, as numbers or arrays."""

from dataclasses import dataclass

import numpy as np

from meshwright.program.local_shape import Number

NO_NUMBER = np.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """Requests of one replica: their mean lengths in tokens, and how they come.

    ``concurrency``: a closed loop of so many clients, which all begin at once; ``rate_per_s``: open arrivals. NaN where
    the other is given; a rate of infinity is the largest batch that fits. ``prefix_tokens`` of the input are in the
    cache before.
    """

    input_tokens: Number
    output_tokens: Number
    concurrency: Number = NO_NUMBER
    rate_per_s: Number = NO_NUMBER
    prefix_tokens: Number = 0.0

    @property
    def prompt_tokens(self) -> Number:
        """Tokens of a prompt that have to be computed."""
        return np.maximum(self.input_tokens - self.prefix_tokens, 1.0)

    @property
    def prompt_positions(self) -> Number:
        """Mean number of positions that they attend to."""
        return self.prefix_tokens + self.prompt_tokens / 2

    @property
    def context(self) -> Number:
        """Mean number of tokens in the cache of a sequence while it decodes."""
        return self.input_tokens + self.output_tokens / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """Limits of one replica.

    ``chunk_tokens`` in one iteration of one attention_dp rank; ``max_sequences`` that decode at once, and
    ``room_sequences`` whose cache fits, both of the whole replica. ``mixed``: prompts run in the iterations of
    sequences that decode; otherwise in iterations of their own. ``align_iterations``: how long a prompt waits for
    prompts of other ranks of attention_dp, so that all prefill at once.
    """

    chunk_tokens: Number
    max_sequences: Number
    room_sequences: Number
    mixed: bool = True
    align_iterations: Number = 0.0

    @property
    def sequences(self) -> Number:
        """The most sequences that decode at once."""
        return np.minimum(self.max_sequences, self.room_sequences)
