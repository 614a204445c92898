"""Why a plan won: for each choice, what the best plan with another value loses, or that it does not fit.

Works on the evaluated arrays, so every sentence rests on numbers that were computed in the same search.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.plan.coded import CODED, told
from meshwright.search.exhaustive import Found
from meshwright.search.varied import LATER, VARIED
from meshwright.units import format_bytes, format_seconds

FIELDS = (
    *("pp", "tp", "cp", "ep", "etp", "micro_batch", "virtual_stages"),
    *(name for name in CODED if name != LATER),
)
"""What the best plans with other values tell of. What is chosen later is told of by the same plan with other values."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one field has its value. ``rivals`` are (value, what the best plan with it costs)."""

    field: str
    value: str
    text: str

    def to_json(self) -> dict[str, str]:
        """JSON-ready data."""
        return {"field": self.field, "value": self.value, "reason": self.text}


def explain_choices(found: Found, row: int, fields: tuple[str, ...] = FIELDS) -> list[Reason]:
    """A reason for each choice of the plan at ``row``, but those with one value and those that do not concern it."""
    own = found.plans.take(np.array([row]))
    reasons = []
    for field in fields:
        column = getattr(found.plans, field)
        values = {*np.unique(column).tolist(), *found.overfull_values.get(field, ())} - _nothing(field)
        others = sorted(values - {int(column[row])})
        concerned = column[row] in values and (field not in VARIED or VARIED[field].concerns(own).all())
        if others and concerned:
            text = "; ".join(_rivals(found, row, field, others))
            reasons.append(Reason(_name(field), value_name(found, field, int(column[row])), text))
    return reasons


def value_name(found: Found, field: str, value: int) -> str:
    """A column's value as a plan file writes it."""
    return told(found.plans.values_of(field)[value] if field in CODED else value)


def _nothing(field: str) -> set[int]:
    """The code of plans that have no such choice."""
    choice = CODED.get(field)
    return {choice.known.index(choice.nothing)} if choice and choice.nothing in choice.known else set()


def _name(field: str) -> str:
    """What a plan file calls a column."""
    return CODED[field].name if field in CODED else field


def _rivals(found: Found, row: int, field: str, others: list[int]) -> list[str]:
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
    texts = [f"{name}: {against(seconds, own)}" for seconds, name in sorted(fitting)[:SHOWN]]
    texts += _spared(found, own) if field == "schedule" else []
    if too_large:
        least = min(too_large)
        names = ", ".join(name for _, name in sorted(too_large)[:SHOWN])
        texts.append(f"does not fit with {names} (at least {format_bytes(least[0])})")
    return texts


def _spared(found: Found, own: float) -> list[str]:
    """Schedules of which no plan was worth evaluating, with what they take at least."""
    seen = {int(code) for code in np.unique(found.plans.schedule)}
    least = sorted((seconds, code) for code, seconds in found.floors.items() if code not in seen)
    return [
        f"schedule {found.plans.schedules[code]}: at least {against(seconds, own)}"
        for seconds, code in least[:SHOWN]
    ]


def _best(found: Found, rows: NDArray[np.int64]) -> int | None:
    rows = rows[found.fits[rows]]
    return int(rows[found.step_s[rows].argmin()]) if len(rows) else None


def against(seconds: float, own: float) -> str:
    """A time beside a plan's own."""
    change = seconds / own - 1
    if abs(change) < 0.0005:
        return f"{format_seconds(seconds)}, equal"
    return f"{format_seconds(seconds)}, {abs(change):.1%} {'slower' if change > 0 else 'faster'}"
