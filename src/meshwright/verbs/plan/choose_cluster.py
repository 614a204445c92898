"""Answer a planning question on one or several clusters: the best plan by an objective, and the Pareto set."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from meshwright.cluster.catalog_prices import ON_DEMAND
from meshwright.cluster.cluster import Cluster
from meshwright.cluster.shorthand import SOURCE
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import Offer, offers
from meshwright.economy.cluster_ranking import RankedCluster, best_of_families, pareto_front, ranked
from meshwright.economy.cluster_row import cluster_row, family_row
from meshwright.economy.limit_doubt import doubt
from meshwright.economy.objectives import MOST_TOKENS, OBJECTIVES, Objective, objective
from meshwright.economy.tokens_and_assumptions import TrainingTerms, parse_terms
from meshwright.economy.training_cost import TrainingCost
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.setting import Setting
from meshwright.verbs.plan.assumed_mfu import at_assumed_mfu
from meshwright.verbs.plan.infeasible import NoClusterError, infeasible_error
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, checked
from meshwright.verbs.plan.priced_proposal import (
    PricedAnswer,
    priced_answer,
    with_most_tokens,
    with_tokens_at_most,
    within_limits,
)
from meshwright.verbs.plan.rank_clusters import OfferedCluster, rank_clusters
from meshwright.verbs.plan.search_dtypes import answer_allowing
from meshwright.verbs.plan.search_space import Progress, Scope


@dataclass(frozen=True, slots=True)
class ClusterChoiceRequest:
    """The options of a cluster choice: candidate clusters, objective, limits and terms."""

    on: tuple[str, ...]
    objective: str = "throughput"
    limits: Limits = field(default_factory=Limits)
    tokens: str | int | None = None
    assume: tuple[str, ...] = ()
    price: str = ON_DEMAND


@dataclass(frozen=True, slots=True)
class CheckedClusterRequest:
    """A wish and a question with nothing wrong in them; a setting and a scope for each offer."""

    terms: TrainingTerms
    aim: Objective
    offers: tuple[Offer, ...]
    settled: tuple[tuple[Setting, Scope], ...]


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
            "per": "step" if self.tokens is None else "training",
            "families": [family_row(standing, limits) for standing in self.families],
            "clusters": self.table,
            "pareto": [cluster_row(standing, limits) for standing in pareto_front(self.standings)],
        }


def choose(question: PlanRequest, request: ClusterChoiceRequest, progress: Progress | None = None) -> Choice:
    """Search. Raises InputError for a wrong question, and InfeasibleError where nothing fits or keeps to the limits."""
    began = time.perf_counter()
    checked, limits = check_request(question, request), request.limits
    contenders = tuple(
        OfferedCluster(offer, _on(question, offer), TrainingCost.of(setting, checked.terms), scope)
        for offer, (setting, scope) in zip(checked.offers, checked.settled, strict=True)
    )
    searched_limits = Limits(power_kw=limits.power_kw) if checked.terms.most else limits
    ranking = _ranking(contenders, checked.aim, searched_limits, progress)
    if any(one.course.terms.assumed.mfu is not None for one in contenders):
        best_now = best_of_families(_standings(ranking), checked.aim, searched_limits)
        contenders = at_assumed_mfu(contenders, best_now)
        ranking = _ranking(contenders, checked.aim, searched_limits, progress)
    if checked.terms.most:
        ranking = [_with_most_tokens(one, limits) for one in ranking]
    priced = [one for one in ranking if isinstance(one, PricedAnswer)]
    standings = _standings(ranking)
    aim = MOST_TOKENS if checked.terms.most else checked.aim
    shown = _best(standings, aim, limits, contenders[-1])[: question.top]
    of_cluster = {one.standing.offer.on: one for one in priced}
    best = [of_cluster[standing.offer.on] for standing in shown]
    first = best[0].answer
    proposals = tuple(one.proposal for one in best)
    remarks = checked.terms.remarks([one.course.setting.cluster for one in contenders])
    counts = {field.name: getattr(first, field.name) for field in fields(first)}
    if len(contenders) > 1:
        counts["search_time_s"] = time.perf_counter() - began
    else:
        proposals = within_limits(best[0], limits)
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


def _ranking(
    contenders: Sequence[OfferedCluster], aim: Objective, limits: Limits, progress: Progress | None
) -> Sequence[RankedCluster | PricedAnswer]:
    if len(contenders) > 1:
        return rank_clusters(contenders, aim, limits, progress)
    (only,) = contenders
    if not only.found:
        only.found.append(answer_allowing(only.question, only.course.setting, progress))
    return [priced_answer(only.offer, only.course, only.found[0], limits)]


def _standings(ranking: Sequence[RankedCluster | PricedAnswer]) -> list[RankedCluster]:
    return [one.standing if isinstance(one, PricedAnswer) else one for one in ranking]


def _with_most_tokens(one: RankedCluster | PricedAnswer, limits: Limits) -> RankedCluster | PricedAnswer:
    return (
        with_most_tokens(one, limits) if isinstance(one, PricedAnswer) else with_tokens_at_most(one, limits)
    )


def _on(question: PlanRequest, offer: Offer) -> PlanRequest:
    return replace(question, header=question.header.model_copy(update={"cluster": offer.on}))


def _best(
    found: Sequence[RankedCluster], aim: Objective, limits: Limits, largest: OfferedCluster
) -> list[RankedCluster]:
    """Those that keep to the limits, the best by the objective first. Raises InfeasibleError where there is none."""
    kept = ranked(found, aim, limits)
    if not kept:
        families = tuple(best_of_families(found, aim, limits))
        raise NoClusterError(infeasible_error(found, aim, limits, largest), found, families)
    return kept


def check_request(question: PlanRequest, request: ClusterChoiceRequest) -> CheckedClusterRequest:
    """Check the request. Raise InputError with every problem."""
    problems: list[Problem] = []
    terms = attempted(lambda: parse_terms(request.tokens, request.assume, request.price), problems)
    aim = attempted(lambda: objective(request.objective), problems)
    problems += request.limits.problems(terms)
    offered = attempted(lambda: offers(request.on), problems)
    settled = _settled(question, offered, terms or TrainingTerms(), problems)
    if offered is not None and terms is not None:
        clusters = [terms.on(offer.cluster) for offer in offered]
        problems += _unknown(aim, request, clusters)
        problems += terms.unknown_families(clusters)
        problems += _of_one_cluster(question) if len(offered) > 1 else ()
    if problems or terms is None or aim is None or offered is None or settled is None:
        raise InputError(problem for at, problem in enumerate(problems) if problem not in problems[:at])
    return CheckedClusterRequest(terms, aim, offered, settled)


def _settled(
    question: PlanRequest, offered: tuple[Offer, ...] | None, terms: TrainingTerms, problems: list[Problem]
) -> tuple[tuple[Setting, Scope], ...] | None:
    """Return a setting and a scope for each offer; of offers that differ only in size, check the last one."""
    if offered is None:
        of_question: list[Problem] = []
        attempted(lambda: checked(question, None), of_question)
        problems += [problem for problem in of_question if not problem.field.startswith("cluster")]
        return None
    last = {_kind(offer): offer for offer in offered}
    found = {
        kind: attempted(lambda offer=offer: checked(_on(question, offer), None), problems)  # type: ignore[misc]
        for kind, offer in last.items()
    }
    if problems:
        return None
    settled = []
    for offer in offered:
        pair = found[_kind(offer)]
        assert pair is not None, "what is wrong is a problem"
        setting, scope = pair
        settled.append((replace(setting, cluster=terms.on(offer.cluster)), scope))
    return tuple(settled)


def _kind(offer: Offer) -> tuple[object, ...]:
    """Return a key that clusters share if they differ only in the number of devices."""
    if offer.cluster.source != SOURCE:
        return (offer.on,)
    return (offer.cluster.pool.device.id, offer.cluster.pool.node.name)


def _unknown(
    aim: Objective | None, request: ClusterChoiceRequest, clusters: Sequence[Cluster]
) -> Iterator[Problem]:
    """Yield a problem for each requested figure that no cluster has."""
    figures: list[tuple[str, object, Objective]] = []
    if aim is not None:
        figures.append(("objective", request.objective, aim))
    if request.limits.budget_usd is not None:
        figures.append(("budget", request.limits.budget_usd, OBJECTIVES["cost"]))
    if request.limits.power_kw is not None:
        for device in dict.fromkeys(
            pool.device.id for one in clusters for pool in one.pools if not pool.node.power_w
        ):
            rule = f"the power of a node of {device} is not known"
            yield Problem("power", request.limits.power_kw, rule, f"--assume {device}:power_kw_per_node=10")
    for name, value, needed in figures:
        if not any(map(needed.known, clusters)):
            names = ", ".join(dict.fromkeys(pool.device.id for one in clusters for pool in one.pools))
            yield Problem(name, value, f"no {needed.needs} is known of {names}", f"--assume {needed.say}")


def _of_one_cluster(question: PlanRequest) -> Iterator[Problem]:
    """Yield a problem for each option that is only searched on one cluster."""
    rule = "is for one cluster of a known size"
    hint = "without it first, then with it on the cluster of the best plan"
    if question.stages != "balanced":
        yield Problem("stages", question.stages, rule, hint)
    if question.solving is not None:
        yield Problem("solve", question.solving.seconds, rule, hint)
    for key in question.allow:
        yield Problem("allow", key, rule, hint)
