"""The request of a cluster choice, and its checks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from meshwright.cluster.catalog_prices import ON_DEMAND
from meshwright.cluster.cluster import Cluster
from meshwright.cluster.shorthand import SOURCE
from meshwright.cost.constants_file import Given, read_constants
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import Offer, offers
from meshwright.economy.objectives import OBJECTIVES, Objective, objective
from meshwright.economy.tokens_and_assumptions import TrainingTerms, parse_terms
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.setting import Setting
from meshwright.verbs.plan.clusters.batch_choice import BatchRange
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, checked
from meshwright.verbs.plan.search_space import Scope


@dataclass(frozen=True, slots=True)
class ClusterChoiceRequest:
    """The options of a cluster choice: candidate clusters, objective, limits, terms and given constants.

    ``batches``: global batches to choose from, where the question does not fix one.
    """

    on: tuple[str, ...]
    objective: str = "throughput"
    limits: Limits = field(default_factory=Limits)
    tokens: str | int | None = None
    assume: tuple[str, ...] = ()
    price: str = ON_DEMAND
    batches: BatchRange | None = None
    constants: Given | None = None


@dataclass(frozen=True, slots=True)
class CheckedClusterRequest:
    """A wish and a question with nothing wrong in them; a setting and a scope for each offer."""

    terms: TrainingTerms
    aim: Objective
    offers: tuple[Offer, ...]
    settled: tuple[tuple[Setting, Scope], ...]


def question_on(question: PlanRequest, offer: Offer, batch: int | None = None) -> PlanRequest:
    """Return the question of one cluster on offer, and of one global batch if that is not the question's own."""
    update: dict[str, object] = {"cluster": offer.on}
    if batch is not None:
        update["workload"] = question.header.workload.model_copy(update={"global_batch": batch})
    return replace(question, header=question.header.model_copy(update=update))


def check_request(question: PlanRequest, request: ClusterChoiceRequest) -> CheckedClusterRequest:
    """Check the request. Raise InputError with every problem."""
    problems: list[Problem] = []
    terms = attempted(lambda: parse_terms(request.tokens, request.assume, request.price), problems)
    aim = attempted(lambda: objective(request.objective), problems)
    problems += request.limits.problems(terms)
    offered = attempted(lambda: offers(request.on), problems)
    settled = _settled(question, offered, terms or TrainingTerms(), request.constants, problems)
    if offered is not None and terms is not None:
        clusters = [terms.on(offer.cluster) for offer in offered]
        problems += _unknown(aim, request, clusters)
        problems += terms.unknown_families(clusters)
        problems += terms.churn_problems()
        several = len(offered) > 1 or request.batches is not None
        problems += _of_one_cluster(question) if several else ()
    if problems or terms is None or aim is None or offered is None or settled is None:
        raise InputError(problem for at, problem in enumerate(problems) if problem not in problems[:at])
    return CheckedClusterRequest(terms, aim, offered, settled)


def _settled(
    question: PlanRequest,
    offered: tuple[Offer, ...] | None,
    terms: TrainingTerms,
    constants: Given | None,
    problems: list[Problem],
) -> tuple[tuple[Setting, Scope], ...] | None:
    """Return a setting and a scope for each offer; of offers that differ only in size, check the last one.

    Settings have the given constants. Those of sizes of one device share a stack, so that they are bounded together.
    """
    if offered is None:
        of_question: list[Problem] = []
        attempted(lambda: checked(question, None), of_question)
        problems += [problem for problem in of_question if not problem.field.startswith("cluster")]
        attempted(lambda: read_constants(constants), problems)
        return None
    last = {_kind(offer): offer for offer in offered}
    found = {
        kind: attempted(lambda offer=offer: checked(question_on(question, offer), None), problems)  # type: ignore[misc]
        for kind, offer in last.items()
    }
    stacks = {pair[0].stack.name for pair in found.values() if pair is not None} or None
    given = attempted(lambda: read_constants(constants, stacks), problems)
    if problems or given is None:
        return None
    found = {kind: pair and (given.on(pair[0]), pair[1]) for kind, pair in found.items()}
    settled = []
    for offer in offered:
        pair = found[_kind(offer)]
        assert pair is not None, "what is wrong is a problem"
        setting, scope = pair
        settled.append((given.on(replace(setting, cluster=terms.on(offer.cluster))), scope))
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
    rule = "is for one cluster of a known size and one global batch"
    hint = "without it first, then with it on the cluster of the best plan"
    if question.stages != "balanced":
        yield Problem("stages", question.stages, rule, hint)
    if question.layers == "ranges":
        yield Problem("layers", question.layers, rule, hint)
    if question.solving is not None:
        yield Problem("solve", question.solving.seconds, rule, hint)
    for key in question.allow:
        yield Problem("allow", key, rule, hint)
