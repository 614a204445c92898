"""Search several clusters for one question: bounds of all of them first, then plans where bounds leave it open.

A cluster is searched unless another one beats it whatever its plans do: no worse in time, money, energy and the
objective at the least time that any of its legal plans that may fit can take (``cost/quick_floor.py``). Those with the
least bound of time come first, for nothing that comes later can beat them. So the set of what no cluster beats is
exact, and so is the best by the objective within any budget and before any deadline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

import numpy as np

from meshwright.cost.constants import constants
from meshwright.cost.pipeline import has_form
from meshwright.cost.quick_floor import quick_floor
from meshwright.economy.course import Course
from meshwright.economy.objectives import Objective
from meshwright.economy.offers import Offer
from meshwright.economy.standing import Standing, beaten, beaten_by
from meshwright.plan.short import ShortPlan
from meshwright.search.space import enumerate_space
from meshwright.verbs.searching import Scope, search, searched_schedules
from meshwright.verbs.solving import Progress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contender:
    """A cluster on offer with the question that is asked of it. ``course`` has its setting."""

    offer: Offer
    header: ShortPlan
    course: Course
    scope: Scope

    def least_step_s(self) -> float | None:
        """No plan that may fit takes less; infinite where none may, 0 where no bound is known, None: none is legal."""
        setting = self.course.setting
        plans = enumerate_space(setting, self.scope.keep, searched_schedules(self.scope, setting)).plans
        if not len(plans):
            return None
        if not all(map(has_form, plans.schedules)):
            return 0.0
        usable = constants()["usable_memory"] * setting.cluster.pool.device.memory_bytes
        return float(np.min(quick_floor(plans, setting, usable).step_s))

    def searched(self) -> Standing:
        """With its best plan, if one fits."""
        _, found = search(replace(self.scope, top=1), self.course.setting)
        if not len(found.ranking):
            why = "no plan that was played fits" if found.unplayed else "the leanest plan needs more memory"
            return Standing(self.offer, self.course, "nothing fits", why=why)
        (row,) = found.top(1)
        plan = found.plans.short(row, self.header)
        return Standing(self.offer, self.course, "searched", float(found.step_s[row]), plan)


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
        found[index] = one.searched() if by is None else beaten(one.offer, one.course, least[index], by)
        searched += [found[index]] if found[index].state == "searched" else []
    return [found[index] for index in range(len(contenders))]


def _told(items: Sequence[T], what: str, tell: Progress | None) -> Iterator[tuple[int, T]]:
    for number, item in enumerate(items):
        if tell is not None:
            tell(f"{what}: {number} of {len(items)}", number / len(items))
        yield number, item
