"""The answer of ``explain`` about one plan, and its public form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.explanation.best_alternative import is_best
from meshwright.explanation.breakdown import CostBreakdown
from meshwright.explanation.plan_difference import ExplainedPlan, PlanDifference
from meshwright.explanation.prediction_parts import is_tie
from meshwright.explanation.schedule_alternatives import ScheduleAlternatives
from meshwright.explanation.sensitivity import NEAR, Sensitivity
from meshwright.explanation.tipping_points import TippingPoint, smallest
from meshwright.explanation.workload_tipping_points import RescaledPlan
from meshwright.search.algorithms.time_memory_front import TimeMemoryPoint

LESS, MORE = NEAR
SEARCHED = (
    *("binds", "sensitivity", "workload", "choices", "schedule", "rivals", "candidates_feasible", "best"),
    *("turns", "smallest_change", "pareto_memory", "devices"),
)
"""Keys of the public form that need more than the plan by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything about one plan.

    ``rivals`` are the best of the ``feasible`` plans of a search, other than this one; ``holds``: it is the best of all
    plans with closed forms, so that ``turns`` are where another one becomes that, otherwise where this one does.
    ``time_memory``: the plans of the search that none beats in time and memory. ``other_devices``: this plan on other
    numbers of devices.
    """

    subject: ExplainedPlan
    spent: CostBreakdown
    sensitivities: tuple[Sensitivity, ...]
    works: Mapping[str, tuple[RescaledPlan, ...]]
    choices: tuple[PlanDifference, ...]
    schedule: ScheduleAlternatives
    rivals: tuple[PlanDifference, ...]
    feasible: int
    holds: bool
    turns: tuple[TippingPoint, ...]
    time_memory: tuple[TimeMemoryPoint, ...]
    other_devices: tuple[RescaledPlan, ...]

    @property
    def fits(self) -> bool:
        """Return true if the plan fits."""
        return self.subject.forecast.fits

    @property
    def quickest(self) -> PlanDifference | None:
        """The quickest other plan that was seen and fits."""
        seen = [*self.rivals, *self.choices, *(other for _, other in self.schedule.others)]
        fitting = [other for other in seen if other.forecast.fits]
        return min(fitting, key=lambda other: other.forecast.step_s, default=None)

    @property
    def summary(self) -> list[str]:
        """Return sentences: the binding resources, the rank among other plans, and the tipping points."""
        return [*self._binding, self._standing, self._turning]

    @property
    def _binding(self) -> list[str]:
        named = min(self.sensitivities, key=lambda one: one.elasticity, default=None)
        if named is None:
            return []
        more = named.step_s[MORE]
        factor, word = (MORE, "more") if more is not None else (LESS, "less")
        seconds = named.step_s[factor]
        assert seconds is not None
        change = seconds / named.own_s - 1
        return [
            f"What binds the step is {named.resource.words} ({named.resource.at(1)}): 10 % {word} of it makes the step "
            f"{abs(change):.1%} {'longer' if change > 0 else 'shorter'} (predicted)."
        ]

    @property
    def _standing(self) -> str:
        own, other = self.subject.forecast, self.quickest
        if other is None:
            return (
                "No other plan that was seen fits." if own.fits else "Neither this plan nor another one fits."
            )
        if not own.fits:
            return f"It does not fit; the quickest seen that does: {other.text}."
        tie = is_tie(own.step_s, other.forecast.step_s, self.subject.tie_ratio)
        if is_best(own.step_s, other.forecast.step_s):
            lead = (
                "a tie for the prediction"
                if tie
                else "more than two predictions can be wrong against each other"
            )
            return (
                f"No plan that was seen is quicker ({self.feasible:,} fit); the next, {lead}: {other.text}."
            )
        lead = "a tie for the prediction" if tie else "beyond a tie"
        return f"A quicker plan is known, {lead}: {other.text}."

    @property
    def _turning(self) -> str:
        found = smallest(self.turns)
        if found is None:
            which = "another plan" if self.holds else "this plan"
            return f"No change of cluster or workload that was tried makes {which} the best."
        return f"The smallest change that was found to change the answer: {found.text}."

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        found = smallest(self.turns)
        searched = {
            **changes_json(self.sensitivities, self.works, self.other_devices),
            "choices": [one.to_json() for one in self.choices],
            "schedule": self.schedule.to_json(),
            "rivals": [one.to_json() for one in self.rivals],
            "candidates_feasible": self.feasible,
            "best": self.holds,
            "turns": [one.to_json() for one in self.turns],
            "smallest_change": found and found.to_json(),
            "pareto_memory": [point.to_json() for point in self.time_memory],
        }
        origin = {
            "against": "null: no other plan was named",
            "sensitivity": "predicted again with each change; the model's constants stay as they are",
            "turns": "predicted: rates are bracketed to 0.5 % of the change, memory is exact, batch and sequence "
            "length are tried at declared factors",
        }
        return public_explanation(self.spent, self.summary, searched, None, origin)


def changes_json(
    sensitivities: Sequence[Sensitivity],
    works: Mapping[str, Sequence[RescaledPlan]],
    devices: Sequence[RescaledPlan],
) -> dict[str, Any]:
    """Return the public form of the plan's predictions under changes of the cluster, the workload and the devices."""
    binding = sorted(sensitivities, key=lambda one: one.elasticity)
    return {
        "binds": [one.resource.name for one in binding],
        "sensitivity": [one.to_json() for one in sensitivities],
        "workload": {name: [one.to_json() for one in tries] for name, tries in works.items()},
        "devices": [one.to_json() for one in devices],
    }


def public_explanation(
    spent: CostBreakdown,
    summary: list[str],
    searched: Mapping[str, Any],
    against: Mapping[str, Any] | None,
    origin: Mapping[str, str],
    each: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the public form; what was not searched or asked is null."""
    resolved = spent.subject.resolved
    return {
        "plan": (resolved.short or resolved.long).to_data(),
        "predict": spent.report.to_json(),
        "summary": summary,
        "time": spent.time_json(),
        "memory": spent.memory_json(),
        **{key: searched.get(key) for key in SEARCHED},
        "against": against,
        "each": each,
        "tie_ratio": spent.subject.tie_ratio,
        "origin": {**spent.report.origin, **origin},
    }
