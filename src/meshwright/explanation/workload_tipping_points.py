"""The plan under another batch or sequence length, and the lengths at which another plan wins."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from meshwright.errors import InputError
from meshwright.explanation.best_alternative import StepTimesUnderRate, is_best
from meshwright.explanation.cluster_resources import Resource
from meshwright.explanation.plan_difference import ExplainedPlan, legal
from meshwright.explanation.prediction_parts import PredictionParts, prediction_parts
from meshwright.explanation.threshold_search import Bracket
from meshwright.explanation.tipping_points import TippingPoint, make_tipping_point
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.predict.predict_plan import estimated

FACTORS = (0.5, 2.0, 0.25, 4.0)
"""Of batch and sequence length, the smallest changes first."""
Searched = Callable[[Setting], RankedPlans]


@dataclass(frozen=True, slots=True)
class RescaledPlan:
    """The subject with ``factor`` times the batch, length or devices; ``fault`` says why there is no forecast."""

    resource: Resource[Setting]
    factor: float
    setting: Setting
    forecast: PredictionParts | None
    fault: str = ""

    @property
    def own_s(self) -> float:
        """The step time, infinite where the plan is illegal or does not fit."""
        return self.forecast.step_s if self.forecast and self.forecast.fits else inf

    @property
    def text(self) -> str:
        """Return the subject's result in words."""
        at = f"{self.resource.at(self.factor)}"
        if self.forecast is None:
            return f"{at}: {self.fault}"
        held = format_bytes(self.forecast.total_bytes)
        if not self.forecast.fits:
            return f"{at}: does not fit, {held} of {format_bytes(self.forecast.usable_bytes)} usable"
        rate = self.setting.workload.tokens_per_step / self.forecast.step_s
        return f"{at}: {format_seconds(self.forecast.step_s)} per step, {rate:,.0f} tokens/s, {held}"

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        forecast, tokens = self.forecast, self.setting.workload.tokens_per_step
        return {
            "factor": self.factor,
            "value": self.resource.value * self.factor,
            "step_time_s": forecast and forecast.step_s,
            "tokens_per_s": forecast and tokens / forecast.step_s,
            "fits": forecast and forecast.fits,
            "memory_bytes": forecast and forecast.total_bytes,
            "text": self.text,
        }


def changed_workloads(subject: ExplainedPlan, resource: Resource[Setting]) -> list[RescaledPlan]:
    """Return the subject at every factor that gives a whole number."""
    whole = (factor for factor in FACTORS if (resource.value * factor).is_integer())
    return [_reworked(subject, resource, factor) for factor in whole]


def _reworked(subject: ExplainedPlan, resource: Resource[Setting], factor: float) -> RescaledPlan:
    long, value = subject.resolved.long, int(resource.value * factor)
    try:
        setting = resource.scaled(factor)
    except InputError as error:
        return RescaledPlan(resource, factor, subject.setting, None, error.problems[0].rule)
    workload = long.workload.model_copy(update={resource.name: value})
    plan = legal(long.model_copy(update={"workload": workload}), setting)
    if isinstance(plan, str):
        return RescaledPlan(resource, factor, setting, None, plan)
    return RescaledPlan(resource, factor, setting, prediction_parts(estimated(plan), setting))


def workload_tipping_points(
    subject: ExplainedPlan, tries: Sequence[RescaledPlan], best: ExplainedPlan | None, searched: Searched
) -> Iterator[TippingPoint]:
    """Yield the first factor downwards and the first upwards that change the best plan.

    ``best`` is the best plan as things are, None where none fits. Where it still beats the subject nothing is searched.
    """
    holds = best is subject
    for down in (True, False):
        old = 1.0
        for one in (one for one in tries if (one.factor < 1) == down):
            if not holds and _is_beaten(one, best):
                continue
            after = _round(one, searched(one.setting), subject)
            if after.holds != holds:
                yield make_tipping_point(subject, one.resource, Bracket(old, one.factor), after, _fault(one))
                break
            old = one.factor


def _is_beaten(one: RescaledPlan, best: ExplainedPlan | None) -> bool:
    """Return true if the subject is out, or the current best plan beats it here too."""
    if one.own_s == inf or best is None:
        return one.own_s == inf
    return not is_best(one.own_s, _reworked(best, one.resource, one.factor).own_s)


def _round(one: RescaledPlan, found: RankedPlans, subject: ExplainedPlan) -> StepTimesUnderRate:
    if not len(found.ranking):
        return StepTimesUnderRate(one.own_s, inf, None)
    best = int(found.ranking[found.step_s[found.ranking].argmin()])
    return StepTimesUnderRate(
        one.own_s, float(found.step_s[best]), short_plan(found.plans, best, subject.header)
    )


def _fault(one: RescaledPlan) -> str:
    if one.forecast is None:
        return f"this plan is illegal ({one.fault}); "
    return "" if one.own_s < inf else "this plan does not fit; "
