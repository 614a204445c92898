"""Reasons for each choice of a plan: the step time with each other value, or that it does not fit.

Works on the evaluated arrays, so every sentence rests on numbers that were computed in the same search.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.plan_choice import format_choice
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.reasons import Reason
from meshwright.search.space.choices import DEFERRED_CHOICE, SEARCHED_CHOICES
from meshwright.units import format_bytes, format_seconds

FIELDS = (
    *("pp", "tp", "cp", "ep", "etp", "micro_batch", "virtual_stages"),
    *(name for name in CHOICES if name != DEFERRED_CHOICE),
)
"""What the best plans with other values tell of. What is chosen later is told of by the same plan with other values."""
MOST_VALUES = 3


def explain_choices(found: RankedPlans, row: int, fields: tuple[str, ...] = FIELDS) -> list[Reason]:
    """Return a reason for each choice of the plan at ``row`` that concerns it and has several values."""
    own = found.plans.take(np.array([row]))
    reasons = []
    for field in fields:
        column = getattr(found.plans, field)
        values = {*np.unique(column).tolist(), *found.overfull_values.get(field, ())} - _nothing(field)
        others = sorted(values - {int(column[row])})
        concerned = column[row] in values and (
            field not in SEARCHED_CHOICES or SEARCHED_CHOICES[field].concerns(own).all()
        )
        if others and concerned:
            text = "; ".join(_rivals(found, row, field, others))
            loss = _loss(found, row, field, others)
            reasons.append(Reason(_name(field), value_name(found, field, int(column[row])), text, loss))
    return reasons


def strongest_reasons(reasons: Iterable[Reason]) -> list[Reason]:
    """Return the reasons whose other values cost most, the strongest first; at most ``MOST_VALUES``."""
    return sorted(reasons, key=lambda reason: -reason.loss)[:MOST_VALUES]


def _loss(found: RankedPlans, row: int, field: str, others: list[int]) -> float:
    """Return the relative loss in step time with the best other value, or its lower bound for a schedule."""
    rows = np.flatnonzero(np.isin(getattr(found.plans, field), others) & found.fits)
    bounds = found.floors.values() if field == "schedule" else ()
    least = min((float(found.step_s[rows].min(initial=np.inf)), *bounds))
    return least / float(found.step_s[row]) - 1


def value_name(found: RankedPlans, field: str, value: int) -> str:
    """Return a column's value as a plan file writes it."""
    return format_choice(found.plans.values[field][value] if field in CHOICES else value)


def _nothing(field: str) -> set[int]:
    """Return the code of plans that do not have the choice."""
    choice = CHOICES.get(field)
    return {choice.known.index(choice.nothing)} if choice and choice.nothing in choice.known else set()


def _name(field: str) -> str:
    """Return a column's name in plan files."""
    return CHOICES[field].name if field in CHOICES else field


def _rivals(found: RankedPlans, row: int, field: str, others: list[int]) -> list[str]:
    column = getattr(found.plans, field)
    fitting: list[tuple[float, str]] = []
    too_large: list[tuple[float, str]] = []
    for value in others:
        rows = np.flatnonzero(column == value)
        name = f"{_name(field)} {value_name(found, field, value)}"
        best = _best(found, rows)
        if best is not None:
            fitting.append((float(found.step_s[best]), name))
        else:
            bound = found.overfull_values.get(field, {}).get(value, np.inf)
            too_large.append((float(found.total_bytes[rows].min(initial=bound)), name))
    own = float(found.step_s[row])
    texts = [f"{name}: {relative_step_time(seconds, own)}" for seconds, name in sorted(fitting)[:MOST_VALUES]]
    texts += _not_priced(found, own) if field == "schedule" else []
    if too_large:
        least = min(too_large)
        names = ", ".join(name for _, name in sorted(too_large)[:MOST_VALUES])
        texts.append(f"does not fit with {names} (at least {format_bytes(least[0])})")
    return texts


def _not_priced(found: RankedPlans, own: float) -> list[str]:
    """Schedules of which no plan was worth evaluating, with what they take at least."""
    seen = {int(code) for code in np.unique(found.plans.schedule)}
    least = sorted((seconds, code) for code, seconds in found.floors.items() if code not in seen)
    return [
        f"schedule {found.plans.schedules[code]}: at least {relative_step_time(seconds, own)}"
        for seconds, code in least[:MOST_VALUES]
    ]


def _best(found: RankedPlans, rows: NDArray[np.int64]) -> int | None:
    rows = rows[found.fits[rows]]
    return int(rows[found.step_s[rows].argmin()]) if len(rows) else None


def relative_step_time(seconds: float, own: float) -> str:
    """Format a step time and its difference from the plan's own."""
    change = seconds / own - 1
    if abs(change) < 0.0005:
        return f"{format_seconds(seconds)}, equal"
    return f"{format_seconds(seconds)}, {abs(change):.1%} {'slower' if change > 0 else 'faster'}"
