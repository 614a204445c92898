"""The plan under another batch or sequence length, and where another plan is the best then."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from meshwright.errors import InputError
from meshwright.explain.beside import Subject, legal
from meshwright.explain.bracket import Bracket
from meshwright.explain.contest import Round, is_best
from meshwright.explain.forecast import Forecast, forecast_of
from meshwright.explain.resources import Resource
from meshwright.explain.turns import Turn, turn
from meshwright.plan.setting import Setting
from meshwright.search.exhaustive import Found
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.predicting import estimated

FACTORS = (0.5, 2.0, 0.25, 4.0)
"""Of batch and sequence length, the smallest changes first."""
Searched = Callable[[Setting], Found]


@dataclass(frozen=True, slots=True)
class Reworked:
    """The subject with ``factor`` times the batch or the length; ``fault`` says why there is no forecast."""

    resource: Resource
    factor: float
    setting: Setting
    forecast: Forecast | None
    fault: str = ""

    @property
    def own_s(self) -> float:
        """The step time, infinite where the plan is illegal or does not fit."""
        return self.forecast.step_s if self.forecast and self.forecast.fits else inf

    @property
    def text(self) -> str:
        """What the subject comes to, in words."""
        at = f"{self.resource.at(self.factor)}"
        if self.forecast is None:
            return f"{at}: {self.fault}"
        held = format_bytes(self.forecast.total_bytes)
        if not self.forecast.fits:
            return f"{at}: does not fit, {held} of {format_bytes(self.forecast.usable_bytes)} usable"
        rate = self.setting.workload.tokens_per_step / self.forecast.step_s
        return f"{at}: {format_seconds(self.forecast.step_s)} per step, {rate:,.0f} tokens/s, {held}"

    def to_json(self) -> dict[str, Any]:
        """The public form."""
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


def reworked(subject: Subject, resource: Resource) -> list[Reworked]:
    """The subject at every factor that gives a whole number."""
    whole = (factor for factor in FACTORS if (resource.value * factor).is_integer())
    return [_reworked(subject, resource, factor) for factor in whole]


def _reworked(subject: Subject, resource: Resource, factor: float) -> Reworked:
    long, value = subject.resolved.long, int(resource.value * factor)
    try:
        setting = resource.scaled(factor)
    except InputError as error:
        return Reworked(resource, factor, subject.setting, None, error.problems[0].rule)
    workload = long.workload.model_copy(update={resource.name: value})
    plan = legal(long.model_copy(update={"workload": workload}), setting)
    if isinstance(plan, str):
        return Reworked(resource, factor, setting, None, plan)
    return Reworked(resource, factor, setting, forecast_of(estimated(plan), setting))


def work_turns(
    subject: Subject, tries: Sequence[Reworked], best: Subject | None, searched: Searched
) -> Iterator[Turn]:
    """The first factor downwards and the first upwards at which the answer is a new one.

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
                yield turn(subject, one.resource, Bracket(old, one.factor), after, _fault(one))
                break
            old = one.factor


def _is_beaten(one: Reworked, best: Subject | None) -> bool:
    """Whether the subject is out, or the best plan as things are beats it here too."""
    if one.own_s == inf or best is None:
        return one.own_s == inf
    return not is_best(one.own_s, _reworked(best, one.resource, one.factor).own_s)


def _round(one: Reworked, found: Found, subject: Subject) -> Round:
    if not len(found.ranking):
        return Round(one.own_s, inf, None)
    best = int(found.ranking[found.step_s[found.ranking].argmin()])
    return Round(one.own_s, float(found.step_s[best]), found.plans.short(best, subject.header))


def _fault(one: Reworked) -> str:
    if one.forecast is None:
        return f"this plan is illegal ({one.fault}); "
    return "" if one.own_s < inf else "this plan does not fit; "
