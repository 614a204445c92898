"""One candidate cluster of a planning question, with the results of its search."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

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
from meshwright.plans.setting import Setting
from meshwright.verbs.plan.clusters.best_plan import best_plan
from meshwright.verbs.plan.clusters.cluster_bounds import ClusterBounds, bound_clusters
from meshwright.verbs.plan.expert_placement import orders_experts
from meshwright.verbs.plan.node_placement import spare_plans
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer, finished
from meshwright.verbs.plan.proposal import Proposal, proposed
from meshwright.verbs.plan.recommendation import Recommended
from meshwright.verbs.plan.search_space import Scope


@dataclass(slots=True)
class FoundPlans:
    """Results of a cluster's search: the step of its fastest plan, the recommended plans, and the full answer."""

    fastest_s: float | None = None
    recommended: Recommended | None = None
    answer: PlanAnswer | None = None


@dataclass(frozen=True, slots=True)
class CandidateCluster:
    """A candidate cluster with the planning question for it. ``course`` has its setting.

    ``found`` holds what was searched, and ``bounds`` those of its plans.
    """

    offer: Offer
    question: PlanRequest
    course: TrainingCost
    scope: Scope
    bounds: ClusterBounds | None = None
    found: FoundPlans = field(default_factory=FoundPlans, compare=False)

    @property
    def setting(self) -> Setting:
        """The nouns and the workload."""
        return self.course.setting

    @property
    def family(self) -> str:
        """The device's id."""
        return self.offer.cluster.pools[0].device.id

    def least_step_s(self) -> float | None:
        """No plan that may fit takes less; as ``ClusterBounds.least_s``."""
        return self._bounds.least_s

    @property
    def _bounds(self) -> ClusterBounds:
        return self.bounds or bound_clusters([(self.scope, self.setting)])[0]

    def beaten(
        self, least: float, against: Sequence[RankedCluster], aim: Objective, limits: Limits
    ) -> RankedCluster | None:
        """Return it as a cluster that another one beats or on which nothing fits; None where it must be searched.

        No plan of it takes less than ``least`` seconds.
        """
        enough = dominated_from_step_s(self.course, least, against, aim, limits)
        if least < enough and self._has_plan_below(enough):
            return None
        if enough < inf:
            by = dominating_cluster(self.course, enough, against, aim, limits)
            assert by is not None, "that is what is enough"
            return dominated_cluster(self.offer, self.course, enough, by)
        why = "no plan that was looked at fits into the memory of a device"
        return RankedCluster(self.offer, self.course, "nothing fits", why=why)

    def _has_plan_below(self, enough: float) -> bool:
        if self.found.fastest_s is None:
            best = best_plan(self.scope, self.setting, enough, self._bounds)
            self.found.fastest_s = None if best is None else best.step_s
        return self.found.fastest_s is not None and self.found.fastest_s < enough

    def at_fastest(self) -> RankedCluster:
        """Return it with its fastest plan, which is known, in place of the recommended one."""
        return RankedCluster(self.offer, self.course, "searched", self.found.fastest_s)

    def candidates(self) -> Iterator[Proposal]:
        """Yield the recommended plans and then the fastest, without reasons and advice where these are extra work."""
        known = self.found.recommended
        if known is None or spare_plans(self.setting) or orders_experts(self.setting):
            yield from self.full_candidates()
            return
        for row in (*known.rows, self._fastest_row(known)):
            (one,) = proposed(
                known.staged, [row], self.question.header, self.setting, known.regret, explained=False
            )
            yield one

    def full_candidates(self) -> tuple[Proposal, ...]:
        """Return the same plans as in the full answer."""
        found = self.answer()
        return (*found.proposals, found.fastest)

    def full_candidate(self, place: int) -> Proposal:
        """Return one of the candidates in full, without the others."""
        known = self.found.recommended
        if known is None or self.found.answer is not None or spare_plans(self.setting):
            return self.full_candidates()[place]
        row = (*known.rows, self._fastest_row(known))[place]
        (one,) = proposed(known.staged, [row], self.question.header, self.setting, known.regret)
        return finished(one, self.setting)

    def answer(self) -> PlanAnswer:
        """Return the full answer; what was searched is not searched again."""
        if self.found.answer is None:
            self.found.answer = answer(self.question, self.setting, known=self.found.recommended)
        return self.found.answer

    @staticmethod
    def _fastest_row(known: Recommended) -> int:
        return min((*known.rows, known.fastest), key=lambda row: float(known.staged.found.step_s[row]))
