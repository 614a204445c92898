"""The most tokens of a training, in whole steps, that keep its limits (``--tokens max``)."""

from collections.abc import Callable
from math import floor

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.tokens_and_assumptions import MOST
from meshwright.economy.training_cost import TrainingCost
from meshwright.economy.training_draws import TrainingDraws


def most_steps(course: TrainingCost, step_s: float, limits: Limits) -> int:
    """Return the most steps of ``step_s`` whose predicted days and dollars keep the limits; 0 if one step does not."""
    one = course.with_steps(1).costs(step_s)
    if not limits.powered(one):
        return 0
    pairs = ((limits.deadline_days, one.days), (limits.budget_usd, one.usd))
    counts = [0.0 if value is None else limit / value for limit, value in pairs if limit is not None]
    return floor(min(_top(course), *counts))


def most_steps_surely(draws: TrainingDraws, limits: Limits) -> int:
    """Return the most steps with which all limits hold with the probability ``limits.sure``; 0 if with none."""
    sure = limits.sure or 0.0
    return _most(
        lambda steps: draws.of(draws.course.with_steps(steps)).sure(limits) >= sure, _top(draws.course)
    )


def _top(course: TrainingCost) -> int:
    return max(1, int(MOST // course.setting.workload.tokens_per_step))


def _most(holds: Callable[[int], bool], top: int) -> int:
    """Return the largest count up to ``top`` that holds, where all smaller ones do too."""
    low, high = 0, 1
    while high <= top and holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if middle <= top and holds(middle):
            low = middle
        else:
            high = middle
    return low
