"""Seconds of decoding and of prefill in a replica where b sequences decode.

t_d(b)    an iteration of b/(attention_dp·pp) sequences on a rank; with pp stages as many micro-batches are under way
K         chunks of a prompt, ⌈tokens/chunk_tokens⌉
own(b)    K iterations with one chunk, the first of which passes all stages: t·(1 + (K − 1)/pp)
extra(b)  what a prompt adds to the time of the others: K·(t with chunk − t without), or K iterations of its own
D         chunks that run at once on the S = adp·pp ranks and micro-batches, all of which wait for the slowest, stage by
          stage: a prompt takes extra/D of the others' time. Of a = n·K chunks that come in an iteration, each rank has
          one with probability a/S, so that D = a/(1 − (1 − a/S)^S), at least 1. An engine that holds prompts back for
          w iterations until other ranks of attention_dp have some too gathers G = min(adp, 1 + n·w); D is at least G,
          and a prompt waits (G − 1)/2n iterations. Requests of equal lengths that all come at once stay in step: D = S
TPOT(b)   t_d + n·extra/D, n = b/(osl − 1) prompts in each decoded token's time (Little)
full      seconds of a prompt where whole chunks of prompts are computed and nothing else, all ranks busy
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meshwright.cost.serving.iteration import ReplicaCost, iteration_seconds
from meshwright.cost.serving.operators import IterationLoad
from meshwright.cost.serving.replica_load import ReplicaLimits, ReplicaLoad
from meshwright.program.local_shape import Number

LEAST_UNDER_WAY = 1e-9


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds of the phases of a replica under a load, as functions of the sequences that decode."""

    cost: ReplicaCost
    load: ReplicaLoad
    limits: ReplicaLimits

    @property
    def chunks(self) -> Number:
        """Iterations in which a prompt is computed."""
        return np.ceil(self.load.prompt_tokens / np.maximum(self.limits.chunk_tokens, 1.0))

    @property
    def steps(self) -> Number:
        """Tokens of a request that are decoded after the first one."""
        return np.asarray(self.load.output_tokens) - 1.0

    def _iteration(self, batch: Number, tokens: Number, prompts: Number, ranks: Number) -> Number:
        degrees = self.cost.degrees
        load = IterationLoad(
            prompt_tokens=tokens,
            prompt_positions=self.load.prompt_positions,
            prompts=prompts,
            prompt_ranks=ranks,
            sequences=batch / (degrees.attention_dp * degrees.pp),
            context=self.load.context,
        )
        return iteration_seconds(self.cost, load)

    def decode_s(self, batch: Number) -> Number:
        """Return the seconds of an iteration without prompts."""
        return self._iteration(batch, 0.0, 0.0, 1.0)

    def with_chunk_s(self, batch: Number, ranks: Number) -> Number:
        """Return the seconds of an iteration with a chunk of a prompt on each of some ranks of attention_dp."""
        among = batch if self.limits.mixed else 0.0 * np.asarray(batch)
        return self._iteration(among, self.load.prompt_tokens / self.chunks, 1 / self.chunks, ranks)

    @cached_property
    def full_s(self) -> Number:
        """Return the seconds of a prompt where chunks are full of prompts on all ranks of attention_dp."""
        tokens = np.maximum(self.limits.chunk_tokens, 1.0)
        prompts = tokens / self.load.prompt_tokens
        ranks = self.cost.degrees.attention_dp
        whole = self._iteration(0.0, tokens, prompts, ranks)
        return whole / prompts / (ranks * self.cost.degrees.pp)

    def at(self, batch: Number) -> "PhasesAtBatch":
        """Return all phases where ``batch`` sequences decode."""
        degrees, chunks = self.cost.degrees, self.chunks
        under_way = np.where(self.steps > 0, batch / np.maximum(self.steps, 1.0), 0.0)
        decode = self.decode_s(batch)
        gathered = np.minimum(degrees.attention_dp, 1 + under_way * self.limits.align_iterations)
        together = np.maximum(self._chunks_together(under_way), gathered)
        chunk = self.with_chunk_s(batch, together / degrees.pp)
        occupied = self._extra_s(chunk, decode) / together
        return PhasesAtBatch(
            decode_s=decode,
            own_s=chunk * (1 + (chunks - 1) / degrees.pp),
            occupied_s=occupied,
            tpot_s=decode + under_way * occupied,
            gathering_iterations=(gathered - 1) / (2 * np.maximum(under_way, LEAST_UNDER_WAY)),
        )

    def _extra_s(self, chunk: Number, decode: Number) -> Number:
        """Return what a prompt adds to iterations, or takes for iterations of its own."""
        return self.chunks * (chunk - decode if self.limits.mixed else chunk)

    def _chunks_together(self, under_way: Number) -> Number:
        """Return how many ranks and micro-batches have a chunk in an iteration in which any has one."""
        slots = np.asarray(self.cost.degrees.attention_dp * self.cost.degrees.pp, float)
        chunks = np.clip(under_way * self.chunks, LEAST_UNDER_WAY, slots)
        by_chance = np.maximum(chunks / (1 - (1 - chunks / slots) ** slots), 1.0)
        return np.where(np.isinf(self.load.rate_per_s), slots, by_chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesAtBatch:
    """Seconds of an iteration without prompts, of a prompt's own prefill, that a prompt takes of others, and TPOT.

    A prompt waits ``gathering_iterations`` for those of other ranks of attention_dp.
    """

    decode_s: Number
    own_s: Number
    occupied_s: Number
    tpot_s: Number
    gathering_iterations: Number

    @property
    def prefill_share(self) -> Number:
        """Share of the time that prompts take."""
        return 1 - self.decode_s / self.tpot_s
