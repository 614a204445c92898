"""Search several clusters for one question: bounds of all of them first, then plans where bounds leave it open.

A cluster is searched unless another one beats it whatever its plans do: no worse in time, money, energy and the
objective at the least time that any of its legal plans that may fit can take (``cost/quick_floor.py``). Those with the
least bound of time come first: what comes later can hardly beat them. Of a cluster that is searched only plans matter
below the time from which on another one beats it. So the set of what no cluster beats is exact, and so is the best by
the objective within any budget and before any deadline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from meshwright.economy.course import Course
from meshwright.economy.objectives import Objective
from meshwright.economy.offers import Offer
from meshwright.economy.standing import Standing, beaten, beaten_by, beaten_from
from meshwright.plan.short import ShortPlan
from meshwright.verbs.best_plan import best_plan, least_step_s
from meshwright.verbs.searching import Progress, Scope

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contender:
    """A cluster on offer with the question that is asked of it. ``course`` has its setting."""

    offer: Offer
    header: ShortPlan
    course: Course
    scope: Scope

    def least_step_s(self) -> float | None:
        """No plan that may fit takes less; as ``best_plan.least_step_s``."""
        return least_step_s(self.scope, self.course.setting)

    def searched(self, least: float, against: Sequence[Standing], aim: Objective) -> Standing:
        """With its best plan, unless one of others that were searched beats it, or nothing fits."""
        enough = beaten_from(self.course, least, against, aim)
        found = best_plan(self.scope, self.course.setting, enough) if least < enough else None
        if found is not None:
            plan = found.plans.short(found.row, self.header)
            return Standing(self.offer, self.course, "searched", found.step_s, plan)
        if enough < inf:
            by = beaten_by(self.course, enough, against, aim)
            assert by is not None, "that is what is enough"
            return beaten(self.offer, self.course, enough, by)
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
        found[index] = contenders[index].searched(least[index], searched, aim)
        searched += [found[index]] if found[index].state == "searched" else []
    return [found[index] for index in range(len(contenders))]


def _told(items: Sequence[T], what: str, tell: Progress | None) -> Iterator[tuple[int, T]]:
    for number, item in enumerate(items):
        if tell is not None:
            tell(f"{what}: {number} of {len(items)}", number / len(items))
        yield number, item
