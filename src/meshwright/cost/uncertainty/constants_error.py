"""Spread of step times, plan by plan, when all constants of the cost model are drawn.

The logarithm of a step time is taken as a sum of functions of one constant each, linear between values that are one
standard deviation apart. A host that is not the bottleneck now, but would be with longer launches, so makes a step
longer and never shorter: intervals need not be symmetric. Two plans in one setting share the draws: what moves
both alike cancels in their ratio.
"""

from dataclasses import replace
from math import exp

import numpy as np

from meshwright.cost.closed_form.constant_changes import changed_step_seconds
from meshwright.cost.constant_values import value_in, with_values
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.cost.uncertainty.constant_draws import ConstantDraws, Floats, constant_draws
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.gather import GATHERS
from meshwright.plans.forms.short import default_gather
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice

ONE_F_ONE_B = ScheduleChoice("1f1b")
NARROW, WIDE = 0.25, 0.5
"""Constants that are known better than the one act in proportion; for those known worse than the other, doubling and
redoubling can change what the step waits for."""
IN_PROPORTION, KNOTS, WIDE_KNOTS = (1,), (-1, 0, 1), (-2, -1, 0, 1, 2)
"""Standard deviations at which the change is computed; in between it is linear."""
SHARE = 0.8


def log_responses(plans: PlanArrays, setting: Setting, draws: ConstantDraws | None = None) -> Floats:
    """Return log(step time under drawn constants / predicted step time) of every plan: (draws, n)."""
    draws = draws or constant_draws()
    plans, middle = _with_closed_forms(plans), with_values(setting, draws.around)
    drawn = dict(draws.concerning(setting, plans))
    moves = [(name, knot) for name, of in drawn.items() for knot in _knots(float(of.std())) if knot]
    moved = [(name, value_in(middle, name) * exp(knot * float(drawn[name].std()))) for name, knot in moves]
    unmoved = [
        (name, value_in(middle, name)) for name, _ in moves[:1]
    ]  # priced with the others, which is cheaper
    *found, usual = (
        np.log(changed_step_seconds(plans, middle, [*moved, *unmoved])) if moves else [np.zeros(0)]
    )
    changes = {move: seconds - usual for move, seconds in zip(moves, found, strict=True)}
    total = np.zeros((len(draws.log_factors), len(plans)))
    for name, of in drawn.items():
        sigma = float(of.std())
        knots = _knots(sigma)
        if len(knots) == 1:
            total += np.outer(of / sigma, changes[name, knots[0]])
        else:
            known = np.array([changes.get((name, knot), np.zeros(len(plans))) for knot in knots])
            total += _between(np.array(knots, dtype=np.float64), known, of / sigma)
    return total


def _knots(sigma: float) -> tuple[int, ...]:
    return IN_PROPORTION if sigma < NARROW else WIDE_KNOTS if sigma > WIDE else KNOTS


def _between(knots: Floats, changes: Floats, at: Floats) -> Floats:
    """Return changes that are known at ``knots``, (knots, n), in between and, in line, beyond: (draws, n)."""
    left = np.clip(np.searchsorted(knots, at) - 1, 0, len(knots) - 2)
    share = (at - knots[left]) / (knots[left + 1] - knots[left])
    return np.asarray(changes[left] + share[:, None] * (changes[left + 1] - changes[left]), dtype=np.float64)


def _with_closed_forms(plans: PlanArrays) -> PlanArrays:
    """Return the plans with 1F1B instead of schedules whose lists must be played; constants act much alike on both."""
    played = ~have_forms(plans) & (plans.pp > 1)
    if not played.any():
        return plans
    values = dict(plans.values) | {"schedule": (*plans.schedules, ONE_F_ONE_B)}
    columns = dict(plans.columns)
    columns["schedule"] = np.where(played, len(plans.schedules), plans.schedule)
    columns["virtual_stages"] = np.where(played, 1, plans.virtual_stages)
    by_unit = played & (plans.gather == GATHERS.index("per-unit"))
    columns["gather"] = np.where(by_unit, GATHERS.index(default_gather("zero3", 2)), plans.gather)
    return replace(plans, values=values, columns=columns, stages="balanced")


def middle_of(log_changes: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the 80 % of the draws in the middle, (n,) each; the present value, 0, is not outside."""
    low, high = np.quantile(log_changes, ((1 - SHARE) / 2, (1 + SHARE) / 2), axis=0)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)
