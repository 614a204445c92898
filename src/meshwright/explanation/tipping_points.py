"""Find the smallest changes of cluster or workload that change the best plan.

Rates are bracketed (``threshold_search.py``). Device memory needs no bracket: no time depends on it, so the answer
changes exactly where a peak begins or ceases to fit. Batch and sequence length are tried at declared factors, with a
search of their own each, for they change what is legal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

from meshwright.explanation.best_alternative import BestPlanTest, BestPlanUnderRate, StepTimesUnderRate
from meshwright.explanation.cluster_resources import Resource
from meshwright.explanation.plan_difference import ExplainedPlan, changed_choices, in_words
from meshwright.explanation.prediction_parts import is_tie
from meshwright.explanation.threshold_search import Bracket, first_change, rungs
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.units import format_seconds

COARSE = (2.0, 0.5)
"""The only rungs for a subject whose lists must be made anew for every price."""


@dataclass(frozen=True, slots=True)
class TippingPoint:
    """One change: ``bracket.new`` times a resource, where the answer is new.

    ``after`` are the step times there; the subject's is infinite where it is illegal or does not fit.
    """

    resource: Resource[Setting]
    bracket: Bracket
    after: StepTimesUnderRate
    why: str

    @property
    def size(self) -> float:
        """Return the size of the change as |ln factor|, equal for changes up and down."""
        return abs(log(self.bracket.new))

    @property
    def text(self) -> str:
        """The change and the new answer, in words."""
        resource, factor = self.resource, self.bracket.new
        return f"{resource.words} × {factor:.4g} ({resource.at(1)} → {resource.at(factor)}): {self.why}"

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        after = self.after
        return {
            "resource": self.resource.name,
            "factor": self.bracket.new,
            "old_factor": self.bracket.old,
            "value": self.resource.value * self.bracket.new,
            "unit": self.resource.unit,
            "step_time_s": _finite(after.own_s),
            "best_step_time_s": _finite(min(after.own_s, after.best_s)),
            "best_plan": None if after.holds or after.best is None else after.best.to_data(),
            "text": self.text,
        }


def _finite(seconds: float) -> float | None:
    return None if seconds == inf else seconds


def make_tipping_point(
    subject: ExplainedPlan,
    resource: Resource[Setting],
    bracket: Bracket,
    after: StepTimesUnderRate,
    fault: str = "",
) -> TippingPoint:
    """Return the tipping point of a bracket; ``fault`` says why the subject is illegal after it."""
    return TippingPoint(resource, bracket, after, fault + _outcome(subject, after))


def _outcome(subject: ExplainedPlan, after: StepTimesUnderRate) -> str:
    own, quickest = format_seconds(after.own_s), format_seconds(after.best_s)
    if after.holds:
        return f"this plan becomes the best, {own} per step"
    if after.best is None:
        return "no other plan fits"
    best, architecture = after.best, subject.setting.model.architecture
    other = best if isinstance(best, LongPlan) else expand(best, architecture)
    changes = in_words(changed_choices(subject.resolved.long, other))
    if after.own_s == inf:
        return f"{changes} becomes the best, {quickest} per step"
    tie = ", a tie" if is_tie(after.own_s, after.best_s, subject.tie_ratio) else ""
    return f"{changes} becomes the best, {quickest} per step against {own}{tie}"


def ladders(resource: Resource[Setting], *, quick: bool) -> Iterator[Sequence[float]]:
    """Yield the ladder upwards, then downwards. ``quick``: every rung, for plans that are priced quickly."""
    for up in (True, False):
        ladder = [rung for rung in rungs(up, resource.most) if quick or rung in COARSE]
        if ladder:
            yield ladder


def rate_tipping_points(contest: BestPlanTest, resource: Resource[Setting]) -> Iterator[TippingPoint]:
    """Upwards and downwards."""
    race, quick = BestPlanUnderRate(contest, resource), contest.subject.quick
    for ladder in ladders(resource, quick=quick):
        if contest.holds:
            race.round(ladder[-1])  # what the end of a ladder says bounds all before it
        bracket = first_change(lambda f: race.holds(f) == contest.holds, ladder, bisect=quick)
        if bracket is not None:
            yield make_tipping_point(contest.subject, resource, bracket, race.round(bracket.new))


def smallest(turns: Sequence[TippingPoint]) -> TippingPoint | None:
    """Return the tipping point with the smallest change; None where there is none."""
    return min(turns, key=lambda one: one.size, default=None)
