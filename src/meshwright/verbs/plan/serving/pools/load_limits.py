"""The load of a planning question and its limits on mean latencies, as numbers of seconds."""

from dataclasses import dataclass
from math import inf, nan

from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.program.local_shape import Number
from meshwright.workload.serving.request_lengths import RequestLengths

AT_MOST = 1 - 1e-9
"""Part of a limit at which roots are looked for, so that what is found keeps it."""


@dataclass(frozen=True, slots=True)
class LevelFactors:
    """Factors that take predicted means to levelled ones (``cost/serving/levels.py``)."""

    ttft: float = 1.0
    tpot: float = 1.0
    throughput: float = 1.0


PLAIN = LevelFactors()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """Requests, their load on the whole cluster, and the most seconds of mean TTFT and TPOT; infinity: no limit.

    Without ``concurrency`` and ``rate_per_s`` the concurrency is searched for the most requests/s.
    """

    lengths: RequestLengths
    concurrency: int | None = None
    rate_per_s: float | None = None
    ttft_s: float = inf
    tpot_s: float = inf

    @property
    def steps(self) -> float:
        """Tokens of a request that are decoded after the first one."""
        return self.lengths.mean_output - 1

    @property
    def closed(self) -> bool:
        """True for a closed loop, of given or searched concurrency."""
        return self.rate_per_s is None

    def load(self, concurrency: Number = nan, rate_per_s: Number = nan) -> ReplicaLoad:
        """Return these requests under a load of all replicas."""
        return ReplicaLoad.of_lengths(self.lengths, concurrency, rate_per_s)

    @property
    def shape(self) -> ReplicaLoad:
        """Return the load of which only the kind counts: closed, or arrivals."""
        return self.load(rate_per_s=nan if self.closed else 1.0)

    def for_levels(self, factors: LevelFactors) -> "LoadLimits":
        """Return the limits of predicted means that keep levelled means within these."""
        return LoadLimits(
            lengths=self.lengths,
            concurrency=self.concurrency,
            rate_per_s=self.rate_per_s,
            ttft_s=self.ttft_s / factors.ttft,
            tpot_s=self.tpot_s / factors.tpot,
        )
