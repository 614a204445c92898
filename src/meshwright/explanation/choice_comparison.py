"""Predict a plan with every value of one of its choices, the other choices unchanged.

A choice of ``plans/choices`` takes the values that a search of the stack has, and those that other stacks have, which
are refused with the stack's reason. A degree takes every divisor of what it divides; data parallelism gives way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meshwright.errors import InputError, Problem, nearest
from meshwright.explanation.breakdown import CostBreakdown
from meshwright.explanation.explanation_result import SEARCHED, public_explanation
from meshwright.explanation.one_step_alternatives import kept_stages, tried
from meshwright.explanation.plan_difference import ExplainedPlan, PlanDifference, plan_difference
from meshwright.explanation.prediction_parts import seconds_in_words
from meshwright.plans.arrays.short_plans import NUMBERS, from_shorts, with_paths
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.plan_choice import Choice, format_choice
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.overrides import apply_overrides
from meshwright.plans.resolve import Resolved
from meshwright.search.nearby.one_choice_changes import schedule_steps, with_usual_sequence

NAMED = {choice.name: choice for choice in CHOICES.values()}
NAMES = (*NUMBERS, *NAMED)
NOT_SEARCHED = "null: the values of one choice are compared with --each, and nothing is searched"


@dataclass(frozen=True, slots=True)
class ValueEffect:
    """One value of a choice: the plan that has it, or the rule that such a plan breaks."""

    value: str
    own: bool
    found: PlanDifference | str

    @property
    def step_s(self) -> float | None:
        """Return the seconds of a step; None where the plan breaks a rule."""
        return None if isinstance(self.found, str) else self.found.forecast.step_s

    @property
    def fits(self) -> bool:
        """Return true for a plan that breaks no rule and fits."""
        return not isinstance(self.found, str) and self.found.forecast.fits

    def to_json(self) -> dict[str, Any]:
        """Return the public form: that of a plan next to another, or the rule."""
        if isinstance(self.found, str):
            return {"value": self.value, "own": self.own, "rule": self.found}
        other = self.found.to_json()
        parts = seconds_in_words(other["difference_s"])
        return {"value": self.value, "own": self.own, "rule": None, **other, "parts": parts}


@dataclass(frozen=True, slots=True)
class ChoiceComparison:
    """All values of a choice: plans that fit come first, in order of step time, and refused values last."""

    spent: CostBreakdown
    name: str
    values: tuple[ValueEffect, ...]

    @property
    def fits(self) -> bool:
        """Return true if the explained plan fits."""
        return self.spent.subject.forecast.fits

    @property
    def summary(self) -> list[str]:
        """Return a sentence with the quickest value."""
        own = next(one for one in self.values if one.own)
        fitting = sum(one.fits for one in self.values)
        best = self.values[0]
        if not fitting:
            return [f"The plan does not fit with any value of {self.name}."]
        if isinstance(best.found, str) or (best.own and fitting == 1):
            return [f"{self.name} {own.value}, as in the plan, is the only value with which it fits."]
        if best.own:
            return [
                f"{self.name} {own.value}, as in the plan, is the quickest of the {fitting} values that fit."
            ]
        return [
            f"{self.name} {best.value} is the quickest of the values that fit ({fitting}); against {own.value}, as in "
            f"the plan: {best.found.verdict}."
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the public form: that of an explanation, with the values under ``each``."""
        each = {"choice": self.name, "values": [one.to_json() for one in self.values]}
        origin = dict.fromkeys(SEARCHED, NOT_SEARCHED)
        return public_explanation(self.spent, self.summary, {}, None, origin, each)


def compare_values(resolved: Resolved, name: str) -> ChoiceComparison:
    """Return the plan with each value of a choice. Raises InputError for a choice that is unknown or without effect."""
    subject = ExplainedPlan.of(resolved)
    if name not in NAMES:
        raise InputError(Problem("each", name, "is no choice of a plan", nearest(name, NAMES)))
    if subject.short is None:
        rule = "the plan has no short form, so that its choices differ from layer to layer"
        raise InputError(Problem("each", name, rule, "meshwright explain without --each"))
    own = _own_value(subject.short, name)
    effects = [ValueEffect(own, True, plan_difference(subject, resolved, subject.forecast))]
    seen = {own}
    for value, plan in _plans(subject, with_usual_sequence(subject.short), name):
        if value not in seen:
            seen.add(value)
            found = plan if isinstance(plan, str) else tried(subject, plan, kept_stages(subject, plan))
            effects.append(ValueEffect(value, False, found))
    return ChoiceComparison(CostBreakdown.of(subject), name, tuple(sorted(effects, key=_rank)))


def _rank(one: ValueEffect) -> tuple[bool, bool, float]:
    return isinstance(one.found, str), not one.fits, one.step_s or 0.0


def _own_value(plan: ShortPlan, name: str) -> str:
    if name in NUMBERS:
        section, _, key = NUMBERS[name].rpartition(".")
        return str(getattr(getattr(plan, section), key))
    return format_choice(NAMED[name].of(plan))


def _plans(subject: ExplainedPlan, plan: ShortPlan, name: str) -> Iterator[tuple[str, ShortPlan | str]]:
    """Yield each value with the plan that has it, or the rule that such a plan breaks."""
    devices, stack = subject.setting.cluster.devices, subject.setting.stack
    if name == "schedule":
        for step in schedule_steps(plan, devices, stack):
            yield str(step.plan.pipeline.choice), step.plan
        return
    if name in NUMBERS:
        values: list[object] = list(_divisors(_divided(subject, plan, name)))
    else:
        choice = NAMED[name]
        _check_concerned(plan, choice)
        values = list(_values(subject, choice))
    for value in values:
        word = format_choice(value)
        if name in NAMED and NAMED[name].searched:
            yield word, with_paths(plan, {NAMED[name].path: NAMED[name].written(value)})
        else:
            yield word, _overridden(plan, f"{name}={word}", devices)


def _overridden(plan: ShortPlan, setting: str, devices: int) -> ShortPlan | str:
    try:
        return apply_overrides(plan, (setting,), devices)
    except InputError as error:
        first = error.problems[0]
        return f"{first.field} = {first.value}: {first.rule}"


def _values(subject: ExplainedPlan, choice: Choice) -> Iterator[object]:
    if choice.searched:
        yield from choice.searched.every(subject.setting)
    for word, value in choice.words.items():
        yield choice.parse(word) if choice.parse else value


def _check_concerned(plan: ShortPlan, choice: Choice) -> None:
    """Refuse a choice that has no effect on plans with these degrees."""
    if choice.searched and not choice.searched.concerns(from_shorts([plan]))[0]:
        layout = plan.layout
        degrees = f"pp {layout.pp}, cp {layout.cp}, tp {layout.tp}"
        rule = f"has no effect on a plan with {degrees}"
        raise InputError(Problem("each", choice.name, rule, "another choice, or a plan with larger degrees"))


def _divided(subject: ExplainedPlan, plan: ShortPlan, name: str) -> int:
    """Return the number that a degree divides."""
    arch, layout = subject.setting.model.architecture, plan.layout
    match name:
        case "ep":
            return arch.moe.experts if arch.moe else 1
        case "micro_batch":
            return max(1, plan.workload.global_batch // (layout.dp_replicate * layout.dp_shard))
        case "virtual_stages":
            return max(1, arch.layers // layout.pp)
    return subject.setting.cluster.devices


def _divisors(number: int) -> Iterator[int]:
    return (n for n in range(1, number + 1) if number % n == 0)
