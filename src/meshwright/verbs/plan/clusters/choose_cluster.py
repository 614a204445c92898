"""Answer a planning question on one or several clusters: the best plan by an objective, and the Pareto set."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster, best_of_families, pareto_front, ranked
from meshwright.economy.cluster_row import cluster_row, family_row
from meshwright.economy.limits_probability import doubt
from meshwright.economy.objectives import MOST_TOKENS, Objective
from meshwright.economy.training_cost import TrainingCost
from meshwright.verbs.plan.clusters.batch_choice import best_batches
from meshwright.verbs.plan.clusters.candidate_cluster import CandidateCluster
from meshwright.verbs.plan.clusters.cluster_request import (
    CheckedClusterRequest,
    ClusterChoiceRequest,
    check_request,
    question_on,
)
from meshwright.verbs.plan.clusters.infeasible import NoClusterError, infeasible_error
from meshwright.verbs.plan.clusters.mfu_assumptions import at_assumed_mfu
from meshwright.verbs.plan.clusters.nearby_batches import nearby_batch_remark
from meshwright.verbs.plan.clusters.proposal_cost import (
    PricedAnswer,
    priced_answer,
    with_full_report,
    with_most_tokens,
    with_tokens_at_most,
    within_limits,
)
from meshwright.verbs.plan.clusters.rank_clusters import rank_clusters, with_bounds
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest
from meshwright.verbs.plan.search_exchanges import answer_allowing
from meshwright.verbs.plan.search_space import Progress
from meshwright.verbs.predict.predict_plan import constants_remarks


@dataclass(frozen=True, slots=True)
class Choice(PlanAnswer):
    """The plans, the best of each cluster where there are several; counts are those of the first one's cluster.

    Clusters are compared by their recommended plans. ``standings`` has every cluster on offer in order, ``families``
    the best of each device family, ``pareto_front`` those that none beats in time, money and energy, which are of the
    training if ``tokens`` are known, else of a step.
    ``doubt`` says which limits the first plan misses in how many cases. ``search_time_s`` is that of all of them.
    """

    request: ClusterChoiceRequest = field(default_factory=lambda: ClusterChoiceRequest(()))
    tokens: int | None = None
    standings: tuple[RankedCluster, ...] = ()
    families: tuple[RankedCluster, ...] = ()
    doubt: str | None = None

    @property
    def chosen(self) -> RankedCluster:
        """The cluster of the first plan."""
        cluster = self.proposals[0].plan.cluster
        return next(one for one in self.standings if one.state == "searched" and one.offer.on == cluster)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each cluster."""
        return [cluster_row(standing, self.request.limits) for standing in self.standings]

    @property
    def _per(self) -> str:
        """Name the work whose costs are given: a step, some sequences or the training."""
        batches = self.request.batches
        if self.tokens is not None:
            return "training"
        return "step" if batches is None else f"{batches.high} sequences"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data in the public form."""
        limits = self.request.limits
        return PlanAnswer.to_json(self) | {
            "objective": self.request.objective,
            "budget_usd": limits.budget_usd,
            "deadline_days": limits.deadline_days,
            "power_kw": limits.power_kw,
            "sure": limits.sure,
            "doubt": self.doubt,
            "per": self._per,
            "families": [family_row(standing, limits) for standing in self.families],
            "clusters": self.table,
            "pareto": [cluster_row(standing, limits) for standing in pareto_front(self.standings)],
        }


def choose(question: PlanRequest, request: ClusterChoiceRequest, progress: Progress | None = None) -> Choice:
    """Search. Raises InputError for a wrong question, and InfeasibleError where nothing fits or keeps to the limits."""
    began = time.perf_counter()
    checked, limits = check_request(question, request), request.limits
    contenders = tuple(_contenders(question, request, checked))
    contenders = tuple(with_bounds(contenders, progress)) if len(contenders) > 1 else contenders
    searched_limits = Limits(power_kw=limits.power_kw) if checked.terms.most else limits
    ranking = _ranking(contenders, checked.aim, searched_limits, progress)
    if any(one.course.terms.assumed.mfu is not None for one in contenders):
        best_now = best_of_families(_standings(ranking), checked.aim, searched_limits)
        contenders = at_assumed_mfu(contenders, best_now)
        ranking = _ranking(contenders, checked.aim, searched_limits, progress)
    if checked.terms.most:
        ranking = [_with_most_tokens(one, limits) for one in ranking]
    aim = MOST_TOKENS if checked.terms.most else checked.aim
    if request.batches is not None:
        of_clusters = best_batches(_standings(ranking), aim, limits)
        contenders = tuple(contenders[place] for place in of_clusters)
        ranking = [ranking[place] for place in of_clusters]
    standings = _standings(ranking)
    shown = _best(standings, aim, limits, contenders[-1])[: question.top]
    places = [next(at for at, one in enumerate(standings) if one is standing) for standing in shown]
    first = contenders[places[0]].answer()
    best = [_in_full(contenders[place], ranking[place]) for place in places]
    proposals = tuple(one.proposal for one in best)
    remarks = [
        *checked.terms.remarks([one.setting.cluster for one in contenders]),
        *constants_remarks(shown[0].course.setting),
    ]
    if request.batches is not None:
        remarks.append(request.batches.remark(contenders[places[0]].setting.workload.global_batch))
    elif len(contenders) > 1 and not checked.terms.most:
        nearby = nearby_batch_remark(contenders[places[0]], contenders, aim, limits)
        remarks += [] if nearby is None else [nearby]
    counts = {field.name: getattr(first, field.name) for field in fields(first)}
    if len(contenders) > 1 or request.batches is not None:
        counts["search_time_s"] = time.perf_counter() - began
    if len(contenders) == 1:
        proposals = within_limits(best[0], first.proposals, limits)
    report = proposals[0].report
    noted = replace(proposals[0], report=replace(report, remarks=(*report.remarks, *remarks)))
    return Choice(
        **counts | {"proposals": (noted, *proposals[1:])},
        request=request,
        tokens=shown[0].course.terms.tokens,
        standings=tuple(standings),
        families=tuple(best_of_families(standings, aim, limits)),
        doubt=doubt(shown[0], standings, aim, limits),
    )


def _contenders(
    question: PlanRequest, request: ClusterChoiceRequest, checked: CheckedClusterRequest
) -> Iterator[CandidateCluster]:
    """Yield a question for each cluster on offer and each global batch that can be best on it."""
    for offer, (setting, scope) in zip(checked.offers, checked.settled, strict=True):
        if request.batches is None:
            course = TrainingCost.of(setting, checked.terms)
            yield CandidateCluster(offer, question_on(question, offer), course, scope)
            continue
        for batch in request.batches.candidates(setting.cluster.devices):
            own = replace(setting, workload=replace(setting.workload, global_batch=batch))
            course = replace(TrainingCost.of(own, checked.terms), sequences=request.batches.high)
            yield CandidateCluster(offer, question_on(question, offer, batch), course, scope)


def _ranking(
    contenders: Sequence[CandidateCluster], aim: Objective, limits: Limits, progress: Progress | None
) -> Sequence[RankedCluster | PricedAnswer]:
    if len(contenders) > 1:
        return rank_clusters(contenders, aim, limits, progress)
    (only,) = contenders
    if only.found.answer is None:
        only.found.answer = answer_allowing(only.question, only.setting, progress)
    return [priced_answer(only.offer, only.course, only.candidates(), limits)]


def _in_full(cluster: CandidateCluster, priced: RankedCluster | PricedAnswer) -> PricedAnswer:
    """Return the plan of a searched cluster with its reasons, remarks and advice."""
    assert isinstance(priced, PricedAnswer), "only what was searched is shown"
    return with_full_report(priced, cluster.full_candidate(priced.place))


def _standings(ranking: Sequence[RankedCluster | PricedAnswer]) -> list[RankedCluster]:
    return [one.standing if isinstance(one, PricedAnswer) else one for one in ranking]


def _with_most_tokens(one: RankedCluster | PricedAnswer, limits: Limits) -> RankedCluster | PricedAnswer:
    return (
        with_most_tokens(one, limits) if isinstance(one, PricedAnswer) else with_tokens_at_most(one, limits)
    )


def _best(
    found: Sequence[RankedCluster], aim: Objective, limits: Limits, largest: CandidateCluster
) -> list[RankedCluster]:
    """Those that keep to the limits, the best by the objective first. Raises InfeasibleError where there is none."""
    kept = ranked(found, aim, limits)
    if not kept:
        families = tuple(best_of_families(found, aim, limits))
        raise NoClusterError(infeasible_error(found, aim, limits, largest), found, families, limits)
    return kept
