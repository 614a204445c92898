"""Questions on several clusters, and what looking at each cluster by itself finds."""

from dataclasses import replace
from functools import cache

from planning_questions import header

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import offers
from meshwright.economy.objectives import OBJECTIVES
from meshwright.economy.tokens_and_assumptions import parse_terms
from meshwright.economy.training_cost import TrainingCost
from meshwright.errors import InfeasibleError
from meshwright.verbs.plan.clusters.choose_cluster import choose
from meshwright.verbs.plan.clusters.cluster_request import ClusterChoiceRequest
from meshwright.verbs.plan.clusters.proposal_cost import priced_answer
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of

MODEL = "llama-3.2-1b"
BATCH = 24


KEEP = ("cp=1", "recompute=none", "virtual_stages=1", "sharding=zero1")
"""Few plans, so that many clusters are searched in a second."""


def question(stack="megatron-core", **changes):
    """A small one; its cluster is that of each offer."""
    return PlanRequest(
        header(MODEL, "several", batch=BATCH, stack=stack), **{"top": 1, "keep": KEEP} | changes
    )


@cache
def chosen(
    *on,
    objective="throughput",
    tokens="10B",
    budget=None,
    deadline=None,
    power=None,
    sure=None,
    assume=(),
    **changes,
):
    """The choice among clusters."""
    limits = Limits(budget, deadline, power, sure)
    wish = ClusterChoiceRequest(on, objective, limits, tokens, tuple(assume))
    return choose(question(**changes), wish)


NO_LIMITS = Limits()


@cache
def one_by_one(on, tokens="10B", assume=(), limits=NO_LIMITS):
    """How every cluster stands, each searched in full by itself."""
    terms = parse_terms(tokens, assume)
    found = []
    for offer in offers(on):
        asked = header(MODEL, offer.on, batch=BATCH)
        setting = setting_of(asked)
        setting = replace(setting, cluster=terms.on(offer.cluster))
        try:
            whole = answer(PlanRequest(asked, KEEP, top=1), setting)
        except InfeasibleError:
            continue
        found.append(
            priced_answer(
                offer, TrainingCost.of(setting, terms), (*whole.proposals, whole.fastest), limits
            ).standing
        )
    return found


def measure(standing, objective):
    """What an objective makes of a standing."""
    return OBJECTIVES[objective].measure(standing.course, standing.step_s)
