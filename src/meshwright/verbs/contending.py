"""Search several clusters for one question: bounds of all of them first, then plans where bounds leave it open.

A cluster is searched unless another one beats it whatever its plans do: no worse in time, money, energy and the
objective at the least time that any of its legal plans that may fit can take (``cost/quick_floor.py``). Those with the
least bound of time come first: what comes later can hardly beat them. Of a cluster that is searched only plans matter
below the time from which on another one beats it. So the set of what no cluster beats is exact, and so is the best by
the objective within any budget and before any deadline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.constants import constants
from meshwright.cost.evaluate import Estimates, evaluate
from meshwright.cost.pipeline import has_form
from meshwright.cost.quick_floor import quick_floor
from meshwright.economy.course import Course
from meshwright.economy.objectives import Objective
from meshwright.economy.offers import Offer
from meshwright.economy.standing import Standing, beaten, beaten_by, beaten_from
from meshwright.plan.arrays import PlanArrays
from meshwright.plan.short import ShortPlan
from meshwright.search.best_below import best_below
from meshwright.search.space import enumerate_space
from meshwright.verbs.searching import Scope, search, searched_schedules
from meshwright.verbs.solving import Progress

T = TypeVar("T")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contender:
    """A cluster on offer with the question that is asked of it. ``course`` has its setting."""

    offer: Offer
    header: ShortPlan
    course: Course
    scope: Scope

    @property
    def plans(self) -> PlanArrays:
        """All legal plans."""
        scope, setting = self.scope, self.course.setting
        return enumerate_space(setting, scope.keep, searched_schedules(scope, setting)).plans

    def floors(self, plans: PlanArrays) -> Floats | None:
        """Seconds that no plan's step is shorter than, infinite where it can not fit; None where no bound is known."""
        if not all(map(has_form, plans.schedules)):
            return None
        setting = self.course.setting
        usable = constants()["usable_memory"] * setting.cluster.pool.device.memory_bytes
        return quick_floor(plans, setting, usable).step_s

    def least_step_s(self) -> float | None:
        """No plan that may fit takes less; infinite where none may, 0 where no bound is known, None: none is legal."""
        plans = self.plans
        if not len(plans):
            return None
        floors = self.floors(plans)
        return 0.0 if floors is None else float(np.min(floors))

    def searched(self, against: Sequence[Standing], aim: Objective) -> Standing:
        """With its best plan, unless one of others that were searched beats it, or nothing fits."""
        plans = self.plans
        floors = self.floors(plans)
        if floors is None:
            return self._played()
        enough = beaten_from(self.course, float(np.min(floors)), against, aim)
        best = best_below(floors, plans.take, self._scores, enough)
        if best is not None:
            return self._with(plans, best.row, best.step_s)
        by = beaten_by(self.course, enough, against, aim) if enough < inf else None
        return self._without() if by is None else beaten(self.offer, self.course, enough, by)

    def _played(self) -> Standing:
        _, found = search(replace(self.scope, top=1), self.course.setting)
        if not len(found.ranking):
            return self._without()
        (row,) = found.top(1)
        return self._with(found.plans, row, float(found.step_s[row]))

    def _scores(self, plans: PlanArrays) -> Estimates:
        return evaluate(plans, self.course.setting, only_fitting=True)

    def _with(self, plans: PlanArrays, row: int, step_s: float) -> Standing:
        return Standing(self.offer, self.course, "searched", step_s, plans.short(row, self.header))

    def _without(self) -> Standing:
        why = "no plan that was looked at fits into the memory of a device"
        return Standing(self.offer, self.course, "nothing fits", why=why)


def standings(
    contenders: Sequence[Contender], aim: Objective, tell: Progress | None = None
) -> list[Standing]:
    """How all of them stand, in their order."""
    found: dict[int, Standing] = {}
    least: dict[int, float] = {}
    for index, one in _told(contenders, "bounds of clusters", tell):
        bound = one.least_step_s()
        if bound is None:
            found[index] = Standing(one.offer, one.course, "nothing is legal", why="no degrees divide it")
        elif bound == inf:
            why = "states and activations take more than a device has, by a lower bound"
            found[index] = Standing(one.offer, one.course, "nothing fits", why=why)
        else:
            least[index] = bound
    quickest = sorted(least, key=lambda index: contenders[index].course.seconds(least[index]) or inf)
    searched: list[Standing] = []
    for _, index in _told(quickest, "plans of clusters", tell):
        one = contenders[index]
        by = beaten_by(one.course, least[index], searched, aim)
        found[index] = (
            one.searched(searched, aim) if by is None else beaten(one.offer, one.course, least[index], by)
        )
        searched += [found[index]] if found[index].state == "searched" else []
    return [found[index] for index in range(len(contenders))]


def _told(items: Sequence[T], what: str, tell: Progress | None) -> Iterator[tuple[int, T]]:
    for number, item in enumerate(items):
        if tell is not None:
            tell(f"{what}: {number} of {len(items)}", number / len(items))
        yield number, item
