"""Search several clusters for one question: bound all of them first, then search the ones left open.

A cluster is searched unless another one beats it whatever its plans do: no worse in time, money, energy and the
objective at the least time that any of its legal plans that may fit can take
(``cost/lower_bounds/coarse_time_and_memory.py``). Those with the least bound of time come first: what comes later
can hardly beat them. Of a cluster that is searched only plans matter below the time from which on another one beats
it. So the set of what no cluster beats is exact, and so is the best by the objective within any budget and before
any deadline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

from meshwright.economy.cluster_offers import Offer
from meshwright.economy.cluster_ranking import (
    RankedCluster,
    dominated_cluster,
    dominated_from_step_s,
    dominating_cluster,
)
from meshwright.economy.objectives import Objective
from meshwright.economy.training_cost import TrainingCost
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.verbs.plan.best_plan import best_plan
from meshwright.verbs.plan.cluster_bounds import ClusterBounds, bound_clusters
from meshwright.verbs.plan.progress_time import with_remaining_time
from meshwright.verbs.plan.search_space import Progress, Scope

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OfferedCluster:
    """A cluster on offer with the question that is asked of it. ``course`` has its setting.

    ``bounds`` of its plans are found with those of other clusters.
    """

    offer: Offer
    header: ShortPlan
    course: TrainingCost
    scope: Scope
    bounds: ClusterBounds | None = None

    def least_step_s(self) -> float | None:
        """No plan that may fit takes less; as ``ClusterBounds.least_s``."""
        return self._bounds.least_s

    @property
    def _bounds(self) -> ClusterBounds:
        return self.bounds or bound_clusters([(self.scope, self.course.setting)])[0]

    def searched(self, least: float, against: Sequence[RankedCluster], aim: Objective) -> RankedCluster:
        """With its best plan, unless one of others that were searched beats it, or nothing fits."""
        enough = dominated_from_step_s(self.course, least, against, aim)
        found = best_plan(self.scope, self.course.setting, enough, self._bounds) if least < enough else None
        if found is not None:
            plan = short_plan(found.plans, found.row, self.header)
            return RankedCluster(self.offer, self.course, "searched", found.step_s, plan)
        if enough < inf:
            by = dominating_cluster(self.course, enough, against, aim)
            assert by is not None, "that is what is enough"
            return dominated_cluster(self.offer, self.course, enough, by)
        why = "no plan that was looked at fits into the memory of a device"
        return RankedCluster(self.offer, self.course, "nothing fits", why=why)


def rank_clusters(
    contenders: Sequence[OfferedCluster], aim: Objective, progress: Progress | None = None
) -> list[RankedCluster]:
    """Rank all clusters by the objective; results keep the clusters' order."""
    found: dict[int, RankedCluster] = {}
    least: dict[int, float] = {}
    contenders = _bounded(contenders, progress)
    for index, one in enumerate(contenders):
        bound = one.least_step_s()
        if bound is None:
            found[index] = RankedCluster(
                one.offer, one.course, "nothing is legal", why="no degrees divide it"
            )
        elif bound == inf:
            why = "states and activations take more than a device has, by a lower bound"
            found[index] = RankedCluster(one.offer, one.course, "nothing fits", why=why)
        else:
            least[index] = bound
    quickest = sorted(least, key=lambda index: contenders[index].course.seconds(least[index]) or inf)
    searched: list[RankedCluster] = []
    for _, index in _with_progress(quickest, "plans of clusters", progress):
        found[index] = contenders[index].searched(least[index], searched, aim)
        searched += [found[index]] if found[index].state == "searched" else []
    return [found[index] for index in range(len(contenders))]


def _bounded(contenders: Sequence[OfferedCluster], progress: Progress | None) -> list[OfferedCluster]:
    told = None if progress is None else with_remaining_time(progress)

    def done(part: float) -> None:
        if told is not None:
            told("bounds of clusters", part)

    done(0.0)
    bounds = bound_clusters([(one.scope, one.course.setting) for one in contenders], done)
    return [replace(one, bounds=found) for one, found in zip(contenders, bounds, strict=True)]


def _with_progress(items: Sequence[T], what: str, progress: Progress | None) -> Iterator[tuple[int, T]]:
    told = None if progress is None else with_remaining_time(progress)
    for number, item in enumerate(items):
        if told is not None:
            told(f"{what}: {number} of {len(items)}", number / len(items))
        yield number, item
