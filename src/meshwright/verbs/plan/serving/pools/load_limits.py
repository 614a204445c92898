"""The load of a planning question and its limits on mean latencies, as numbers of seconds."""

from dataclasses import dataclass, replace
from math import inf, nan

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.levels import Level, LoadKind, ServedMeans, levelled
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.cost.serving.steady_state import SteadyState
from meshwright.program.local_shape import Number
from meshwright.workload.serving.request_lengths import RequestLengths

AT_MOST = 1 - 1e-9
"""Part of a limit at which roots are looked for, so that what is found keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadLimits:
    """Requests, their load on the whole cluster, and the most seconds of mean TTFT and TPOT; infinity: no limit.

    ``level``: of measured over predicted means, which these limits of predicted means are already divided by
    (``at_level``). Without ``concurrency`` and ``rate_per_s`` the concurrency is searched for the most requests/s.
    """

    lengths: RequestLengths
    concurrency: int | None = None
    rate_per_s: float | None = None
    ttft_s: float = inf
    tpot_s: float = inf
    level: Level | None = None

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

    def at_level(self, level: Level | None) -> "LoadLimits":
        """Return the limits of predicted means that keep the levelled ones within these.

        A wait for room has the level of TPOT, another first token its own: TTFT keeps its limit with either.
        """
        if level is None:
            return self
        ttft, tpot = level.ttft.factor, level.tpot.factor
        return replace(self, ttft_s=self.ttft_s / max(ttft, tpot), tpot_s=self.tpot_s / tpot, level=level)

    @property
    def most_faster(self) -> float:
        """Factor by which a level speeds requests up at most."""
        return 1.0 if self.level is None else max(1 / self.level.ttft.factor, 1 / self.level.tpot.factor)

    @property
    def shorter_waits_gain(self) -> bool:
        """True where seconds that move from the first token to the further ones make no levelled request longer."""
        return self.level is None or self.level.ttft.factor >= self.level.tpot.factor

    def means(self, steady: SteadyState, concurrency: Number) -> ServedMeans:
        """Return the means of steady states with their level; of one output token TPOT is 0."""
        tpot = steady.tpot_s if self.steps > 0 else np.zeros_like(steady.ttft_s)
        found = ServedMeans(steady.ttft_s, tpot, steady.requests_per_s)
        if self.level is None:
            return found
        waits = (steady.limited_by != "") & self.closed
        rate = np.nan if self.rate_per_s is None else self.rate_per_s
        kind = LoadKind(concurrency=concurrency, rate_per_s=rate, steps=self.steps, waits=waits)
        return levelled(found, kind, self.level)

    def held(self, steady: SteadyState) -> NDArray[np.bool_]:
        """Return true where steady states keep the limits."""
        tpot = steady.tpot_s if self.steps > 0 else 0.0
        return np.asarray((steady.ttft_s <= self.ttft_s) & (tpot <= self.tpot_s))
