"""Find the best plan of a scope without explanations, for comparisons of many clusters."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.single_best import best_below
from meshwright.search.space.plan_space import Space
from meshwright.verbs.plan.search_space import (
    Scope,
    has_closed_form,
    scoring,
    search,
    searched_space,
    space_bounds,
    usable_bytes,
    without_slower_context_forms,
)


@dataclass(frozen=True, slots=True)
class BestPlan:
    """The plan at a row, and the seconds of its step."""

    plans: PlanArrays
    row: int
    step_s: float


def least_step_s(scope: Scope, setting: Setting) -> float | None:
    """No plan that may fit takes less; infinite where none may, 0 where no bound is known, None: none is legal."""
    space = without_slower_context_forms(searched_space(scope, setting), setting)
    if not len(space):
        return None
    return float(_floors(space, setting).min()) if has_closed_form(space).all() else 0.0


def best_plan(scope: Scope, setting: Setting, enough: float) -> BestPlan | None:
    """Return the best plan; None where nothing fits, or where it takes ``enough`` seconds or more.

    Among plans without closed forms it is found whatever is enough.
    """
    space = without_slower_context_forms(searched_space(scope, setting), setting)
    if not has_closed_form(space).all():
        _, found = search(replace(scope, top=1), setting)
        rows = found.top(1)
        return BestPlan(found.plans, rows[0], float(found.step_s[rows[0]])) if rows else None

    def take(rows: NDArray[np.int64]) -> PlanArrays:
        return space.every(*np.divmod(rows, len(space.base))).plans

    best = best_below(_floors(space, setting).reshape(-1), take, scoring(setting), enough)
    return None if best is None else BestPlan(best.plans, 0, best.step_s)


def _floors(space: Space, setting: Setting) -> NDArray[np.float64]:
    """Seconds that a step is no shorter than, infinite for plans that can not fit: (variants, n)."""
    floors, usable = np.full(space.legal.shape, np.inf), usable_bytes(setting)
    for row, legal, found in zip(floors, space.legal, space_bounds(space, setting), strict=True):
        fits = legal & (found.total_bytes <= usable)
        row[fits] = found.step_s[fits]
    return floors
