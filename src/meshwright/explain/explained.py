"""The answer of ``explain`` about one plan, and its public form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.explain.beside import Beside, Subject
from meshwright.explain.contest import is_best
from meshwright.explain.forecast import is_tie
from meshwright.explain.reworked import Reworked
from meshwright.explain.scheduled import Scheduled
from meshwright.explain.sensitivity import NEAR, Sensitivity
from meshwright.explain.spent import Spent
from meshwright.explain.turns import Turn, smallest

LESS, MORE = NEAR
SEARCHED = (
    *("binds", "sensitivity", "workload", "choices", "schedule", "rivals", "candidates_feasible", "best"),
    *("turns", "smallest_change"),
)
"""Keys of the public form that need more than the plan by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Everything about one plan.

    ``rivals`` are the best of the ``feasible`` plans of a search, other than this one; ``holds``: it is the best of all
    plans with closed forms, so that ``turns`` are where another one becomes that, otherwise where this one does.
    """

    subject: Subject
    spent: Spent
    sensitivities: tuple[Sensitivity, ...]
    works: Mapping[str, tuple[Reworked, ...]]
    choices: tuple[Beside, ...]
    schedule: Scheduled
    rivals: tuple[Beside, ...]
    feasible: int
    holds: bool
    turns: tuple[Turn, ...]

    @property
    def fits(self) -> bool:
        """Whether the plan fits."""
        return self.subject.forecast.fits

    @property
    def quickest(self) -> Beside | None:
        """The quickest other plan that was seen and fits."""
        seen = [*self.rivals, *self.choices, *(other for _, other in self.schedule.others)]
        fitting = [other for other in seen if other.forecast.fits]
        return min(fitting, key=lambda other: other.forecast.step_s, default=None)

    @property
    def summary(self) -> list[str]:
        """What binds, how it stands among the others, what would change the answer: a sentence each."""
        return [*self._binding, self._standing, self._turning]

    @property
    def _binding(self) -> list[str]:
        named = min(self.sensitivities, key=lambda one: one.elasticity, default=None)
        if named is None:
            return []
        more = named.step_s[MORE]
        factor, said = (MORE, "more") if more is not None else (LESS, "less")
        seconds = named.step_s[factor]
        assert seconds is not None
        change = seconds / named.own_s - 1
        return [
            f"What binds the step is {named.resource.words} ({named.resource.at(1)}): 10 % {said} of it makes the step "
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
        """The public form."""
        found = smallest(self.turns)
        searched = {
            "binds": [
                one.resource.name for one in sorted(self.sensitivities, key=lambda one: one.elasticity)
            ],
            "sensitivity": [one.to_json() for one in self.sensitivities],
            "workload": {name: [one.to_json() for one in tries] for name, tries in self.works.items()},
            "choices": [one.to_json() for one in self.choices],
            "schedule": self.schedule.to_json(),
            "rivals": [one.to_json() for one in self.rivals],
            "candidates_feasible": self.feasible,
            "best": self.holds,
            "turns": [one.to_json() for one in self.turns],
            "smallest_change": found and found.to_json(),
        }
        origin = {
            "against": "null: no other plan was named",
            "sensitivity": "predicted again with each change; the model's constants stay as they are",
            "turns": "predicted: rates are bracketed to 0.5 % of the change, memory is exact, batch and sequence "
            "length are tried at declared factors",
        }
        return public(self.spent, self.summary, searched, None, origin)


def public(
    spent: Spent,
    summary: list[str],
    searched: Mapping[str, Any],
    against: Mapping[str, Any] | None,
    origin: Mapping[str, str],
) -> dict[str, Any]:
    """The public form; what was not searched is null."""
    resolved = spent.subject.resolved
    return {
        "plan": (resolved.short or resolved.long).to_data(),
        "predict": spent.report.to_json(),
        "summary": summary,
        "time": spent.time_json(),
        "memory": spent.memory_json(),
        **{key: searched.get(key) for key in SEARCHED},
        "against": against,
        "tie_ratio": spent.subject.tie_ratio,
        "origin": {**spent.report.origin, **origin},
    }
