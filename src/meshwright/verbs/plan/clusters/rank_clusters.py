"""Search several clusters for one question: bound all of them first, then search the ones left open.

A cluster is searched unless another one of the same device family beats it whatever its plans do: no worse in time,
money, energy and the objective at the least time that any of its legal plans that may fit can take
(``cost/lower_bounds/coarse_time_and_memory.py``). Those with the least bound of time come first: what comes later
can hardly beat them. A cluster is searched only if it has a plan below the time from which on another one beats it.
So the set of what no cluster beats is exact, and so is the best by the objective within any limits, of all clusters and
of each family.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import Offer
from meshwright.economy.cluster_ranking import (
    RankedCluster,
    dominated_cluster,
    dominated_from_step_s,
    dominating_cluster,
)
from meshwright.economy.objectives import Objective
from meshwright.economy.training_cost import TrainingCost
from meshwright.plans.forms.short import ShortPlan
from meshwright.verbs.plan.clusters.best_plan import best_plan
from meshwright.verbs.plan.clusters.cluster_bounds import ClusterBounds, bound_clusters
from meshwright.verbs.plan.clusters.proposal_cost import PricedAnswer, priced_answer
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer
from meshwright.verbs.plan.progress_time import with_remaining_time
from meshwright.verbs.plan.search_space import Progress, Scope

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OfferedCluster:
    """A cluster on offer with the question that is asked of it. ``course`` has its setting.

    ``found`` holds the answer once it was searched, and ``bounds`` those of its plans.
    """

    offer: Offer
    question: PlanRequest
    course: TrainingCost
    scope: Scope
    bounds: ClusterBounds | None = None
    found: list[PlanAnswer] = field(default_factory=list, compare=False)

    @property
    def header(self) -> ShortPlan:
        """Nouns and workload of the question."""
        return self.question.header

    @property
    def family(self) -> str:
        """The device's id."""
        return self.offer.cluster.pools[0].device.id

    def least_step_s(self) -> float | None:
        """No plan that may fit takes less; as ``ClusterBounds.least_s``."""
        return self._bounds.least_s

    @property
    def _bounds(self) -> ClusterBounds:
        return self.bounds or bound_clusters([(self.scope, self.course.setting)])[0]

    def searched(
        self, least: float, against: Sequence[RankedCluster], aim: Objective, limits: Limits
    ) -> RankedCluster | PricedAnswer:
        """With its recommended plan, unless one of others that were searched beats it, or nothing fits."""
        enough = dominated_from_step_s(self.course, least, against, aim, limits)
        if least < enough and self._has_plan_below(enough):
            return priced_answer(self.offer, self.course, self.answer(), limits)
        if enough < inf:
            by = dominating_cluster(self.course, enough, against, aim, limits)
            assert by is not None, "that is what is enough"
            return dominated_cluster(self.offer, self.course, enough, by)
        why = "no plan that was looked at fits into the memory of a device"
        return RankedCluster(self.offer, self.course, "nothing fits", why=why)

    def answer(self) -> PlanAnswer:
        """Return the recommended plans, searched once."""
        if not self.found:
            self.found.append(answer(self.question, self.course.setting))
        return self.found[0]

    def _has_plan_below(self, enough: float) -> bool:
        if self.found:
            return self.found[0].fastest.report.step_time_s < enough
        return best_plan(self.scope, self.course.setting, enough, self._bounds) is not None


def rank_clusters(
    contenders: Sequence[OfferedCluster], aim: Objective, limits: Limits, progress: Progress | None = None
) -> list[RankedCluster | PricedAnswer]:
    """Search what another cluster of its device family does not beat; results keep the clusters' order."""
    found: dict[int, RankedCluster | PricedAnswer] = {}
    least: dict[int, float] = {}
    contenders = with_bounds(contenders, progress)
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
    searched: dict[str, list[RankedCluster]] = defaultdict(list)
    for _, index in _with_progress(quickest, "plans of clusters", progress):
        one = contenders[index]
        against = searched[one.family]
        found[index] = priced = one.searched(least[index], against, aim, limits)
        if isinstance(priced, PricedAnswer):
            against.append(priced.standing)
    return [found[index] for index in range(len(contenders))]


def with_bounds(
    contenders: Sequence[OfferedCluster], progress: Progress | None = None
) -> Sequence[OfferedCluster]:
    """Return the clusters with the bounds of their plans, which are found together."""
    if all(one.bounds is not None for one in contenders):
        return contenders
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
