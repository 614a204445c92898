"""Explain a serving plan: parts of a request's time, what limits it, and which changes make it better."""

from dataclasses import dataclass
from math import isfinite
from typing import Any

from meshwright.cost.serving.hardware_times import PEAKS
from meshwright.cost.serving.levels import LevelTable
from meshwright.cost.serving.serving_report import serving_report
from meshwright.explanation.serving.serving_alternatives import ServingAlternative, serving_alternatives
from meshwright.explanation.serving.serving_sensitivity import ServingSensitivity, serving_sensitivities
from meshwright.plans.serving.resolve_serving import ResolvedServing
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.program.serving.storage_formats import PLAIN, StorageFormats
from meshwright.result import ServingReport
from meshwright.units import format_seconds

LITTLE = 0.01
"""A gain below this part is none."""


@dataclass(frozen=True, slots=True)
class ServingExplanation:
    """Everything about one serving plan; ``choices`` are plans one step away, the most tokens per second first."""

    report: ServingReport
    sensitivities: tuple[ServingSensitivity, ...]
    choices: tuple[ServingAlternative, ...]

    @property
    def fits(self) -> bool:
        """Return true if the plan fits."""
        return self.report.fits

    @property
    def summary(self) -> list[str]:
        """Return sentences: where a request's time goes, the rate that binds it, and the best step away."""
        return [one for one in (self._time, self._rate, self._step) if one]

    @property
    def _time(self) -> str:
        whole, parts = self.report.step_time_s, self.report.breakdown_s
        if not isfinite(whole):
            return f"No mean latency exists: what limits the plan is {self.report.serving['limited_by']}."
        largest = max(parts, key=lambda part: parts[part])
        return (
            f"Of {format_seconds(whole)} of a mean request {parts[largest] / whole:.0%} is {largest}; what limits "
            f"the plan is {self.report.serving['limited_by']} (predicted)."
        )

    @property
    def _rate(self) -> str:
        known = [(e, one) for one in self.sensitivities if (e := one.elasticity("output_tokens_per_s"))]
        if not known:
            return ""
        elasticity, one = max(known, key=lambda pair: pair[0])
        return f"10 % more {one.resource.words} brings {0.1 * elasticity:+.1%} output tokens/s (predicted)."

    @property
    def _step(self) -> str:
        now = self.report.serving["output_tokens_per_s"]
        better = [
            one for one in self.choices if one.report.serving["output_tokens_per_s"] > (1 + LITTLE) * now
        ]
        if not better:
            return "No plan one step away writes more output tokens per second."
        return f"A step that writes more: {better[0].text} (predicted)."

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        data, whole = self.report.to_json(), self.report.step_time_s
        parts = sorted(self.report.breakdown_s.items(), key=lambda part: -part[1])
        return {
            "summary": self.summary,
            "predict": data,
            "time": {"parts": [{"part": name, "seconds": s, "share": s / whole} for name, s in parts]},
            "memory": data["memory_bytes"],
            "limited_by": data["serving"]["limited_by"],
            "sensitivity": [one.to_json() for one in self.sensitivities],
            "choices": [one.to_json() for one in self.choices],
            "origin": data["origin"],
        }


def explain_serving(
    file: ServingFile, resolved: ResolvedServing, levels: LevelTable | None = None
) -> ServingExplanation:
    """Explain a legal plan. Raises UnsupportedError with everything in it that is not predicted yet."""
    report = serving_report(resolved, levels)
    choices = tuple(serving_alternatives(file, resolved, levels))
    if not report.fits:
        return ServingExplanation(report, (), choices)
    writing = next(pool for pool in resolved.plan.pools.values() if pool.does != "prefill")
    weights = StorageFormats.of_pool(writing.formats, resolved.model.architecture).weights
    peaks = resolved.cluster.pool.device.peak_flops
    name = PEAKS.get(weights, weights)
    rates = serving_sensitivities(resolved, name if name in peaks else PLAIN, levels)
    return ServingExplanation(report, tuple(rates), choices)
