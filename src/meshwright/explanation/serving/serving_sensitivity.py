"""The sensitivity of a serving plan's means to each rate of its cluster, predicted again for every change."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite, log
from typing import Any

from meshwright.cluster.cluster import Cluster
from meshwright.cost.serving.levels import LevelTable
from meshwright.cost.serving.serving_report import serving_report
from meshwright.explanation.cluster_resources import Resource, cluster_rates, host_link
from meshwright.explanation.sensitivity import FACTORS, NEAR
from meshwright.plans.serving.resolve_serving import ResolvedServing

MEANS = ("ttft_s", "tpot_s", "output_tokens_per_s")
WORDS = {
    "ttft_s": "time to first token",
    "tpot_s": "time per token",
    "output_tokens_per_s": "output tokens/s",
}
SMALL = 5e-4
"""Changes of a mean below this part are not worth a word."""


@dataclass(frozen=True, slots=True)
class ServingSensitivity:
    """Means of requests by factor of one rate; no entry for a factor that the model does not know."""

    resource: Resource[Cluster]
    own: dict[str, float]
    by_factor: dict[float, dict[str, float]]

    def elasticity(self, mean: str) -> float | None:
        """∂ln mean/∂ln rate; None where the mean does not exist."""
        known = {1.0: self.own} | {
            factor: found for factor, found in self.by_factor.items() if factor in NEAR
        }
        low, high = min(known), max(known)
        ends = known[low][mean], known[high][mean]
        if low == high or not all(isfinite(end) and end > 0 for end in ends):
            return None
        return log(ends[1] / ends[0]) / log(high / low)

    @property
    def text(self) -> str:
        """Effect of twice as much, or of half where twice is not known, in words."""
        factor, word = (2.0, "twice of it") if 2.0 in self.by_factor else (0.5, "half of it")
        found = self.by_factor[factor]
        changes = [
            f"{WORDS[mean]} {found[mean] / self.own[mean] - 1:+.1%}".replace("-", "−")
            for mean in MEANS
            if self.own[mean] > 0 and isfinite(found[mean]) and abs(found[mean] / self.own[mean] - 1) > SMALL
        ]
        return f"{self.resource.words} ({self.resource.at(1)}): {word}: {', '.join(changes) or 'no change'}"

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "resource": self.resource.name,
            "value": self.resource.value,
            "unit": self.resource.unit,
            "elasticity": {mean: self.elasticity(mean) for mean in MEANS},
            "changes": [
                {"factor": factor, **{mean: _json(value) for mean, value in found.items()}}
                for factor, found in self.by_factor.items()
            ],
            "text": self.text,
        }


def serving_sensitivities(
    resolved: ResolvedServing, precision: str, levels: LevelTable | None = None
) -> Iterator[ServingSensitivity]:
    """Yield the means under every rate of a plan's cluster; ``precision`` names the arithmetic of its weights."""
    own = means_of(resolved, levels)
    rates = [*cluster_rates(resolved.cluster, precision)]
    if any(pool.has_phase_layouts for pool in resolved.plan.pools.values()):
        rates.append(host_link(resolved.cluster))
    for rate in rates:
        found = {
            factor: means_of(replace(resolved, cluster=rate.scaled(factor)), levels)
            for factor in FACTORS
            if factor <= rate.most
        }
        yield ServingSensitivity(rate, own, found)


def means_of(resolved: ResolvedServing, levels: LevelTable | None = None) -> dict[str, float]:
    """Return the means of a plan's requests that an explanation follows."""
    serving = serving_report(resolved, levels).serving
    return {mean: serving[mean] for mean in MEANS}


def _json(value: float) -> float | None:
    return value if isfinite(value) else None
