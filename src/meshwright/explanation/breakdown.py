"""Break a plan's step time and memory down by cause, in numbers and sentences."""

from dataclasses import dataclass
from typing import Any

from meshwright.cost.step_breakdown import StepBreakdown, step_breakdown
from meshwright.cost.uncertainty.step_error import step_error
from meshwright.explanation.memory_tipping_points import least_capacity
from meshwright.explanation.plan_difference import ExplainedPlan
from meshwright.explanation.prediction_parts import NAMES
from meshwright.result import Report
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.predict.predict_plan import reported

PASSES = {"F": "forward", "B": "backward", "I": "input gradients", "W": "weight gradients"}
SHARE = {"E": "look-up", "S": "logits", "T": "their gradients", "D": "gradients of rows"}
KINDS = {"matrix_products": "matrix products", "memory_bound": "kernels that move bytes"}


@dataclass(frozen=True, slots=True)
class CostBreakdown:
    """The parts of a step; ``step_breakdown`` is None where only a simulation knows the plan."""

    subject: ExplainedPlan
    report: Report
    anatomy: StepBreakdown | None

    @classmethod
    def of(cls, subject: ExplainedPlan) -> "CostBreakdown":
        """Of the plan that is explained."""
        report = reported(subject.resolved, subject.estimate)
        if subject.short is None:
            return cls(subject, report, None)
        found = step_breakdown(subject.short, subject.setting, subject.stages, subject.recomputes)
        return cls(subject, report, found)

    def time_json(self) -> dict[str, Any]:
        """Where the time goes; the cuts that closed forms alone know are null for a plan that was simulated."""
        step_s, found = self.subject.forecast.step_s, self.anatomy
        parts = sorted(self.subject.forecast.parts.items(), key=lambda item: -item[1])
        return {
            "step_time_s": step_s,
            "parts": [
                {"part": NAMES.get(name, name), "key": name, "seconds": seconds, "share": seconds / step_s}
                for name, seconds in parts
                if seconds
            ],
            "binding_rank": found and found.rank,
            "passes_s": found and dict(found.passes_s),
            "kernels_s": found and dict(found.kernels_s),
            "recompute_s": found and found.recompute_s,
            "vocabulary_s": found and found.vocabulary_s,
            "pipeline_s": found
            and {
                "mean_work": found.mean_work_s,
                "fill_drain": found.fill_drain_s,
                "imbalance": found.imbalance_s,
            },
            "text": self.time_text,
        }

    @property
    def time_text(self) -> list[str]:
        """Sentences about the time."""
        report, step_s = self.report, self.subject.forecast.step_s
        sentences = [f"{format_seconds(step_s)} per step are predicted{self._interval}."]
        if report.mfu is not None:
            sentences[0] = f"{sentences[0][:-1]}, MFU {report.mfu:.1%}."
        sentences += [f"Extrapolated: {what}." for what in step_error(self.subject.setting).extrapolated]
        found = self.anatomy
        if found is None:
            return [*sentences, "Its passes are known to the simulation only."]
        sentences.append(
            f"Pipeline rank {found.rank} has most to do: " + _listed(found.passes_s, PASSES | SHARE) + "."
        )
        kernels = _listed(found.kernels_s, KINDS)
        sentences.append(f"Of its {format_seconds(sum(found.kernels_s.values()))} of compute: {kernels}.")
        for seconds, what in ((found.recompute_s, "recomputation"), (found.vocabulary_s, "the vocabulary")):
            if seconds:
                sentences.append(f"{what[0].upper()}{what[1:]} takes {_of(seconds, step_s)} on that rank.")
        return [*sentences, *_idle(found, step_s)]

    @property
    def _interval(self) -> str:
        low, high = self.report.step_time_low_s, self.report.step_time_high_s
        if low is None or high is None:
            return ""
        return f" (80 %: {format_seconds(low)} to {format_seconds(high)})"

    def memory_json(self) -> dict[str, Any]:
        """Where the memory of the fullest device goes."""
        forecast, memory = self.subject.forecast, self.report.memory_bytes
        total = forecast.total_bytes
        parts = sorted(forecast.ledger.items(), key=lambda item: -item[1])
        return {
            "rank": memory["worst_rank"],
            "total": total,
            "total_low": memory["total_low"],
            "total_high": memory["total_high"],
            "usable": forecast.usable_bytes,
            "capacity": forecast.capacity_bytes,
            "headroom": forecast.usable_bytes - total,
            "least_capacity": least_capacity(total, forecast.cluster),
            "fits": forecast.fits,
            "fits_probability": self.report.fits_probability,
            "parts": [{"part": name, "bytes": held, "share": held / total} for name, held in parts if held],
            "text": self.memory_text,
        }

    @property
    def memory_text(self) -> list[str]:
        """Sentences about the memory."""
        forecast, memory = self.subject.forecast, self.report.memory_bytes
        total, room = forecast.total_bytes, forecast.usable_bytes - forecast.total_bytes
        parts = sorted(((held, name) for name, held in forecast.ledger.items() if held), reverse=True)
        listed = ", ".join(f"{format_bytes(held)} {name} ({held / total:.0%})" for held, name in parts)
        left = f"{format_bytes(room)} are left" if room >= 0 else f"{format_bytes(-room)} too much"
        probability = self.report.fits_probability
        likely = "" if probability is None else f", it fits with probability {probability:.2f}"
        return [
            f"Pipeline rank {memory['worst_rank']} is fullest, {format_bytes(total)} predicted (80 %: "
            f"{format_bytes(memory['total_low'])} to {format_bytes(memory['total_high'])}): {listed}.",
            f"Usable are {format_bytes(forecast.usable_bytes)} of {format_bytes(forecast.capacity_bytes)}: {left}"
            f"{likely}; a device needs {format_bytes(least_capacity(total, forecast.cluster))} for it.",
        ]


def _idle(found: StepBreakdown, step_s: float) -> list[str]:
    """Why the pipeline idles."""
    if len(found.work_s) == 1:
        return []
    least, most = min(found.work_s), max(found.work_s)
    length = found.mean_work_s + found.fill_drain_s + found.imbalance_s
    return [
        f"The pipeline is {format_seconds(length)} long without its messages: {format_seconds(found.mean_work_s)} "
        f"work of the mean rank, {_of(found.fill_drain_s, step_s)} to fill and drain it if all stages were alike, and "
        f"{_of(found.imbalance_s, step_s)} because they are not (ranks work {format_seconds(least)} to "
        f"{format_seconds(most)})."
    ]


def _listed(seconds: Any, names: dict[str, str]) -> str:
    return ", ".join(f"{format_seconds(s)} {names.get(name, name)}" for name, s in seconds.items() if s)


def _of(seconds: float, step_s: float) -> str:
    return f"{format_seconds(seconds)} ({seconds / step_s:.1%} of the step)"
