"""The load of one replica and its limits, as numbers or arrays."""

from dataclasses import dataclass, replace
from math import fsum

import numpy as np

from meshwright.program.local_shape import Number
from meshwright.workload.serving.request_lengths import RequestLengths

NO_NUMBER = np.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """Requests of one replica: their mean lengths in tokens, and how they come.

    ``concurrency``: a closed loop of so many clients, which all begin at once; ``rate_per_s``: open arrivals. NaN where
    the other is given; a rate of infinity is the largest batch that fits. ``prefix_tokens`` of the input are in the
    cache before. ``mean_positions`` and ``mean_context`` are those of a histogram of lengths; None: all are alike.
    """

    input_tokens: Number
    output_tokens: Number
    concurrency: Number = NO_NUMBER
    rate_per_s: Number = NO_NUMBER
    prefix_tokens: Number = 0.0
    mean_positions: float | None = None
    mean_context: float | None = None

    @classmethod
    def of_lengths(
        cls, lengths: RequestLengths, concurrency: Number, rate_per_s: Number, *, prefix_cache: bool = True
    ) -> "ReplicaLoad":
        """Return a load of requests whose lengths are a histogram; without ``prefix_cache`` prefixes are computed."""
        prefix = lengths.prefix_tokens if prefix_cache else 0
        rows = [(max(prompt - prefix, 1), prompt, written, share) for prompt, written, share in lengths.pairs]
        computed = fsum(tokens * share for tokens, _, _, share in rows)
        attended = fsum(tokens * (prefix + tokens / 2) * share for tokens, _, _, share in rows)
        written = fsum(output * share for _, _, output, share in rows)
        held = fsum(output * (prompt + output / 2) * share for _, prompt, output, share in rows)
        return cls(
            input_tokens=lengths.mean_input,
            output_tokens=lengths.mean_output,
            concurrency=concurrency,
            rate_per_s=rate_per_s,
            prefix_tokens=lengths.mean_input - computed,
            mean_positions=attended / computed,
            mean_context=held / written,
        )

    def of_replica(self, replicas: Number) -> "ReplicaLoad":
        """Return the load of one of equal replicas that share this one."""
        return replace(
            self, concurrency=self.concurrency / replicas, rate_per_s=np.asarray(self.rate_per_s) / replicas
        )

    @property
    def prompt_tokens(self) -> Number:
        """Tokens of a prompt that have to be computed."""
        return np.maximum(self.input_tokens - self.prefix_tokens, 1.0)

    @property
    def prompt_positions(self) -> Number:
        """Mean number of positions that they attend to."""
        if self.mean_positions is not None:
            return self.mean_positions
        return self.prefix_tokens + self.prompt_tokens / 2

    @property
    def context(self) -> Number:
        """Mean number of tokens in the cache of a sequence while it decodes."""
        if self.mean_context is not None:
            return self.mean_context
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
