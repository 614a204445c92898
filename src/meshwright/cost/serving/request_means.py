"""Means of a plan's requests with the level of its model, device and engine, and their 80 % intervals."""

from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import numpy as np

from meshwright.cost.serving.estimate_serving import ServingEstimate
from meshwright.cost.serving.levels import (
    METRICS,
    Level,
    LevelTable,
    LoadKind,
    ServedMeans,
    interval,
    level_of,
    levelled,
)
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.stack.serving.serving_stack import NamedEngine

AT_LIMIT = 1 - 1e-9
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMeans:
    """Means of all requests of a plan: seconds, requests/s and output tokens/s; NaN: there is none.

    ``batch``: sequences that decode at once in one replica.
    """

    ttft_s: float
    tpot_s: float
    requests_per_s: float
    output_tokens: float
    batch: float
    level: Level

    @classmethod
    def of(cls, found: ServingEstimate, level: Level) -> "RequestMeans":
        """Return the means of a plan; a plan that does not fit serves no request."""
        steady, load, output = found.state.steady, found.load, float(found.load.output_tokens)
        if not bool(found.state.fits):
            return cls(
                ttft_s=nan, tpot_s=nan, requests_per_s=0.0, output_tokens=output, batch=0.0, level=level
            )
        steps = max(output - 1, 0.0)
        decoding = found.state.decoding
        largest = np.asarray(decoding.phases.limits.sequences)
        closed, in_turns = np.isnan(load.rate_per_s), found.state.turns is not None
        kind = LoadKind(
            concurrency=load.concurrency,
            rate_per_s=load.rate_per_s,
            steps=steps,
            waits=np.asarray(closed & (in_turns | (steady.batch >= AT_LIMIT * largest))),
        )
        means = levelled(
            ServedMeans(steady.ttft_s, steady.tpot_s, np.asarray(steady.requests_per_s)), kind, level
        )
        rate, tpot = float(means.requests_per_s), float(means.tpot_s)
        replicas = next(arrays.replicas for pool, arrays in found.pools if pool.does != "prefill")
        batch = rate * steps * tpot / float(replicas) if steps > 0 else 0.0
        batch = float(steady.batch) if in_turns else batch
        return cls(
            ttft_s=float(means.ttft_s),
            tpot_s=tpot,
            requests_per_s=rate if isfinite(rate) else 0.0,
            output_tokens=output,
            batch=batch if isfinite(batch) else 0.0,
            level=level,
        )

    @property
    def latency_s(self) -> float:
        """Seconds of a request."""
        return self.ttft_s + self._further(self.tpot_s)

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens/s of all pools."""
        return self.requests_per_s * self.output_tokens

    @property
    def ttft_ends_s(self) -> Ends:
        """Ends of the interval of the time to the first token."""
        return _ends(interval(self.ttft_s, self.level.ttft))

    @property
    def tpot_ends_s(self) -> Ends:
        """Ends of the interval of the time per further token."""
        return _ends(interval(self.tpot_s, self.level.tpot))

    @property
    def throughput_ends(self) -> Ends:
        """Ends of the interval of the output tokens/s."""
        return _ends(interval(self.output_tokens_per_s, self.level.throughput))

    @property
    def latency_ends_s(self) -> Ends:
        """Both intervals of times, added up end by end."""
        (low, high), (further_low, further_high) = self.ttft_ends_s, self.tpot_ends_s
        return low + self._further(further_low), high + self._further(further_high)

    def level_json(self) -> dict[str, Any]:
        """Return the level that was applied: whose it is, from how many runs, and its factors."""
        factors = {metric: getattr(self.level, metric).factor for metric in METRICS}
        return {"name": self.level.name, "rows": self.level.rows, "factors": factors}

    def _further(self, tpot: float) -> float:
        steps = self.output_tokens - 1
        return steps * tpot if steps > 0 else 0.0


def plan_level(resolved: ResolvedServing, levels: LevelTable | None) -> Level:
    """Return the level of a plan's model on its devices under its engine; ``levels`` of a user go before ours."""
    return level_of(
        resolved.model.name,
        resolved.cluster.pool.device.id,
        NamedEngine.of(resolved.plan.stack).name,
        levels,
        disaggregated=len(resolved.plan.pools) > 1,
    )


def _ends(pair: tuple[Any, Any]) -> Ends:
    return float(pair[0]), float(pair[1])
