"""The sensitivity of a plan's step to each rate of its cluster, evaluated again for every change.

The elasticity is ∂ln t/∂ln x by differences of ``NEAR`` around the cluster as it is: −0.7 means that 1 % more makes
the step 0.7 % shorter. That of a rate is, with the sign turned, the part of the step that it binds; what no rate binds
is launches, latencies and the stack's host time. Where the model does not know more of a rate, the difference is taken
downwards only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log
from typing import Any

from meshwright.explanation.cluster_resources import Resource
from meshwright.explanation.plan_difference import ExplainedPlan
from meshwright.plans.setting import Setting
from meshwright.units import format_seconds
from meshwright.verbs.predict.predict_plan import estimated

NEAR = (0.9, 1.1)
FAR = (0.5, 2.0)
FACTORS = (FAR[0], *NEAR, FAR[1])


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Step times by factor; None of a factor that the model does not know."""

    resource: Resource[Setting]
    own_s: float
    step_s: dict[float, float | None]

    @property
    def elasticity(self) -> float:
        """∂ln t/∂ln x: 0 where the rate does not matter, negative where more of it helps."""
        known = {1.0: self.own_s} | {f: s for f in NEAR if (s := self.step_s[f]) is not None}
        low, high = min(known), max(known)
        return log(known[high] / known[low]) / log(high / low)

    @property
    def text(self) -> str:
        """Half and twice of it, in words."""
        half, twice = (self._change(factor) for factor in FAR)
        return (
            f"{self.resource.words} ({self.resource.at(1)}): half of it {half}, twice {twice}; "
            + f"elasticity {self.elasticity:+.3f}".replace("-", "−")
        )

    def _change(self, factor: float) -> str:
        seconds = self.step_s[factor]
        if seconds is None:
            return "is not known"
        change = seconds - self.own_s
        sign = "+" if change > 0 else "−"
        return f"{sign}{format_seconds(abs(change))} ({sign}{abs(change) / self.own_s:.1%})"

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "resource": self.resource.name,
            "value": self.resource.value,
            "unit": self.resource.unit,
            "elasticity": self.elasticity,
            "changes": [
                {"factor": factor, "step_time_s": seconds, "ratio": seconds and seconds / self.own_s}
                for factor, seconds in self.step_s.items()
            ],
            "text": self.text,
        }


def sensitivities(subject: ExplainedPlan, resources: list[Resource[Setting]]) -> Iterator[Sensitivity]:
    """Yield the subject's step times under every rate."""
    for resource in resources:
        times = {f: seconds_at(subject, resource, f) if f <= resource.most else None for f in FACTORS}
        yield Sensitivity(resource, subject.forecast.step_s, times)


def seconds_at(subject: ExplainedPlan, resource: Resource[Setting], factor: float) -> float:
    """Return the subject's step time in seconds with ``factor`` times a rate."""
    return seconds_under(subject, resource.scaled(factor))


def seconds_under(subject: ExplainedPlan, setting: Setting) -> float:
    """Return the subject's step time in seconds in another setting."""
    return sum(estimated(replace(subject.resolved, setting=setting)).parts.values())
