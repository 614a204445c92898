"""Compare two plans: the choices in which they differ and the effect on time and memory, largest first.

Both are of one model and one step; cluster and stack may differ. In one setting two predictions are a tie inside the
interval of their ratio, otherwise where their own 80 % intervals overlap.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.explanation.best_alternative import StepTimesUnderRate
from meshwright.explanation.breakdown import CostBreakdown
from meshwright.explanation.cluster_resources import Resource, rates
from meshwright.explanation.explanation_result import SEARCHED, public_explanation
from meshwright.explanation.plan_difference import ExplainedPlan, PlanDifference, plan_difference
from meshwright.explanation.prediction_parts import NAMES, differences
from meshwright.explanation.range_comparison import compare_ranges
from meshwright.explanation.sensitivity import seconds_at
from meshwright.explanation.threshold_search import first_change
from meshwright.explanation.tipping_points import TippingPoint, ladders, smallest
from meshwright.plans.resolve import Resolved
from meshwright.plans.setting import Setting
from meshwright.units import format_bytes, format_seconds

OF_A_STEP = (
    *("task", "seq_len", "global_batch", "documents", "encoder_tokens", "images", "routing", "capacity"),
)
"""Keys of a workload that must be equal where seconds of two plans are compared."""
NOT_SEARCHED = "null: two plans are compared with --against, and nothing is searched"


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """Two plans. ``turns`` are changes at which the slower one becomes the quicker.

    ``ranges`` compare them by range of layers, where layers of one of them differ.
    """

    own: CostBreakdown
    other: CostBreakdown
    difference: PlanDifference
    tie: bool
    turns: tuple[TippingPoint, ...]
    ranges: Mapping[str, Any] | None

    @property
    def fits(self) -> bool:
        """Return true if the explained plan fits."""
        return self.own.subject.forecast.fits

    @property
    def summary(self) -> list[str]:
        """Return sentences: the quicker plan, by how much and in which parts, and the tipping points."""
        found = smallest(self.turns)
        sentences = [f"The other plan, {self.difference.text}."]
        if self.tie:
            sentences.append("The two are a tie for the prediction: probe both.")
        if found is not None:
            sentences.append(f"The smallest change of a rate that turns it: {found.text}.")
        return sentences

    @property
    def lines(self) -> list[str]:
        """A line for each part of time and memory that differs, the largest difference first."""
        own, other = self.difference.own, self.difference.forecast
        return [
            *_changed(own.parts, other.parts, format_seconds),
            *_changed(own.ledger, other.ledger, format_bytes),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the public form: that of an explanation, with the other plan under ``against``."""
        against = {
            **self.difference.to_json(),
            "tie": self.tie,
            "predict": self.other.report.to_json(),
            "time": self.other.time_json(),
            "memory": self.other.memory_json(),
            "lines": self.lines,
            "ranges": self.ranges,
            "turns": [one.to_json() for one in self.turns],
        }
        return public_explanation(self.own, self.summary, {}, against, dict.fromkeys(SEARCHED, NOT_SEARCHED))


def _changed(
    own: Mapping[str, float], other: Mapping[str, float], formatted: Callable[[float], str]
) -> Iterator[str]:
    """``bubble: 2.352 s → 2.556 s`` for every part that reads differently."""
    for name in differences(own, other):
        left, right = formatted(own.get(name, 0.0)), formatted(other.get(name, 0.0))
        if left != right:
            yield f"{NAMES.get(name, name)}: {left} → {right}"


def compare_plans(own: Resolved, other: Resolved, where: str) -> PlanComparison:
    """Two plans; ``where`` names the other one. Raises InputError where they can not be compared part by part."""
    _check_alike(own, other, where)
    subjects = ExplainedPlan.of(own), ExplainedPlan.of(other)
    ours, theirs = map(CostBreakdown.of, subjects)
    found = plan_difference(subjects[0], other, subjects[1].forecast)
    same = own.setting == other.setting
    tie = found.to_json()["tie"] if same else _overlap(ours, theirs)
    turns = tuple(_turns(*subjects)) if same else ()
    return PlanComparison(ours, theirs, found, tie, turns, compare_ranges(own, other))


def _check_alike(own: Resolved, other: Resolved, where: str) -> None:
    """One model, and one step of it."""
    ours, theirs = own.setting, other.setting
    problems = []
    if ours.model.architecture != theirs.model.architecture:
        rule = f"is a plan for {theirs.model.name}, and parts of a step are compared for one model"
        problems.append(Problem("against", where, rule, f"a plan for {ours.model.name}"))
    for name in OF_A_STEP:
        mine, its = getattr(ours.workload, name), getattr(theirs.workload, name)
        if mine != its:
            rule = f"has workload.{name} {its} in place of {mine}, and seconds of another step do not compare"
            problems.append(Problem("against", where, rule, f"workload.{name}: {mine} in both plans"))
    if problems:
        raise InputError(problems)


def _overlap(own: CostBreakdown, other: CostBreakdown) -> bool:
    """Return true if the intervals of two step times overlap."""
    a, b = own.report, other.report
    lows, highs = (a.step_time_low_s, b.step_time_low_s), (a.step_time_high_s, b.step_time_high_s)
    if None in lows or None in highs:
        return False
    return max(low for low in lows if low is not None) <= min(high for high in highs if high is not None)


def _turns(own: ExplainedPlan, other: ExplainedPlan) -> Iterator[TippingPoint]:
    """Where the order of two plans in one setting turns."""
    quick = own.quick and other.quick
    for resource in rates(own.setting):
        now = _order(own, other, resource, 1.0)
        for ladder in ladders(resource, quick=quick):
            bracket = first_change(_same(own, other, resource, now), ladder, bisect=quick)
            if bracket is not None:
                after = StepTimesUnderRate(*_both(own, other, resource, bracket.new), other.resolved.long)
                which = "this plan" if after.own_s <= after.best_s else "the other plan"
                times = f"{format_seconds(after.own_s)} against {format_seconds(after.best_s)}"
                why = f"{which} becomes the quicker one, {times}"
                yield TippingPoint(resource, bracket, after, why)


def _same(
    own: ExplainedPlan, other: ExplainedPlan, resource: Resource[Setting], now: bool
) -> Callable[[float], bool]:
    return lambda factor: _order(own, other, resource, factor) == now


def _order(own: ExplainedPlan, other: ExplainedPlan, resource: Resource[Setting], factor: float) -> bool:
    """Return true if the first plan is at least as quick as the second."""
    ours, theirs = _both(own, other, resource, factor)
    return ours <= theirs


def _both(
    own: ExplainedPlan, other: ExplainedPlan, resource: Resource[Setting], factor: float
) -> tuple[float, float]:
    return seconds_at(own, resource, factor), seconds_at(other, resource, factor)
