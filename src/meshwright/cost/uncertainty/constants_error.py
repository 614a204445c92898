"""Spread of step times, plan by plan, when all constants of the cost model are drawn.

The logarithm of a step time is taken as a sum of functions of one constant each, linear between values that are one
standard deviation apart. A host that is not the bottleneck now, but would be with longer launches, so makes a step
longer and never shorter: intervals need not be symmetric. Two plans in one setting share the draws: what moves
both alike cancels in their ratio.
"""

from dataclasses import replace

import numpy as np

from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.constant_values import value_in, with_values
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.cost.uncertainty.constant_draws import ConstantDraws, Floats, constant_draws
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice

ONE_F_ONE_B = ScheduleChoice("1f1b")
NARROW, WIDE = 0.25, 0.5
"""Constants that are known better than the one act in proportion; for those known worse than the other, doubling and
redoubling can change what the step waits for."""
KNOTS, WIDE_KNOTS = (-1, 0, 1), (-2, -1, 0, 1, 2)
"""Standard deviations at which the change is computed; in between it is linear."""
SHARE = 0.8


def log_responses(plans: PlanArrays, setting: Setting, draws: ConstantDraws | None = None) -> Floats:
    """Return log(step time under drawn constants / predicted step time) of every plan: (draws, n)."""
    draws = draws or constant_draws()
    plans, middle = _with_closed_forms(plans), with_values(setting, draws.around)
    base = np.log(step_seconds(plans, middle))

    def change(name: str, log_factor: float) -> Floats:
        moved = with_values(middle, {name: value_in(middle, name) * np.exp(log_factor)})
        return np.asarray(np.log(step_seconds(plans, moved)) - base, dtype=np.float64)

    total = np.zeros((len(draws.log_factors), len(plans)))
    for name, drawn in draws.concerning(setting, plans):
        sigma = float(drawn.std())
        knots = WIDE_KNOTS if sigma > WIDE else KNOTS
        if sigma < NARROW:
            total += np.outer(drawn / sigma, change(name, sigma))
        else:
            changes = np.array(
                [change(name, knot * sigma) if knot else np.zeros(len(plans)) for knot in knots]
            )
            total += _between(np.array(knots, dtype=np.float64), changes, drawn / sigma)
    return total


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
    return replace(plans, values=values, columns=columns, stages="balanced")


def middle_of(log_changes: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the 80 % of the draws in the middle, (n,) each; the present value, 0, is not outside."""
    low, high = np.quantile(log_changes, ((1 - SHARE) / 2, (1 + SHARE) / 2), axis=0)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)
