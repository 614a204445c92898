"""Find the smallest change that makes a plan legal and fit: single settings, then pairs; the fastest wins.

A change is a setting as ``predict --set`` takes it (``tp=4``: data parallelism absorbs it). ``judge`` is handed in and
says of many changed plans at once which are legal, fit and how long they take; this floor knows plans, not costs.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from math import inf
from typing import NamedTuple

from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.overrides import try_overrides
from meshwright.plans.setting_candidates import setting_candidates

MOST_PAIRS = 1500
Judge = Callable[[Sequence[ShortPlan]], Sequence[float]]
"""Seconds per step of every plan; infinite for one that is illegal or does not fit."""


class SmallestFix(NamedTuple):
    """Settings that mend a plan, the plan with them, and its seconds per step."""

    settings: tuple[str, ...]
    plan: ShortPlan
    step_s: float


def mend(plan: ShortPlan, devices: int, experts: int, judge: Judge) -> SmallestFix | None:
    """Return the fewest settings that make ``plan`` legal and fit; None where two do not suffice."""
    singles = list(setting_candidates(plan, devices, experts))
    pairs = [pair for pair in combinations(singles, 2) if _name(pair[0]) != _name(pair[1])]
    for chosen in ([(setting,) for setting in singles], pairs[:MOST_PAIRS]):
        found = _best(plan, devices, chosen, judge)
        if found is not None:
            return found
    return None


def _best(
    plan: ShortPlan, devices: int, chosen: Sequence[tuple[str, ...]], judge: Judge
) -> SmallestFix | None:
    changed = [(settings, try_overrides(plan, settings, devices)) for settings in chosen]
    tried = [(settings, other) for settings, other in changed if other is not None and other != plan]
    seconds = judge([other for _, other in tried]) if tried else ()
    ranked = sorted(zip(seconds, range(len(tried)), strict=True))
    if not ranked or ranked[0][0] == inf:
        return None
    step_s, index = ranked[0]
    return SmallestFix(*tried[index], step_s)


def _name(setting: str) -> str:
    return setting.partition("=")[0]
