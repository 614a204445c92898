"""Questions on several clusters, and what looking at each cluster by itself finds."""

from functools import cache

from planning_questions import header

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import offers
from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.economy.objectives import OBJECTIVES
from meshwright.economy.tokens_and_assumptions import parse_terms
from meshwright.economy.training_cost import TrainingCost
from meshwright.errors import InfeasibleError
from meshwright.verbs.plan.choose_cluster import ClusterChoiceRequest, choose
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
def chosen(*on, objective="throughput", tokens="10B", budget=None, deadline=None, assume=(), **changes):
    """The choice among clusters."""
    wish = ClusterChoiceRequest(on, objective, Limits(budget, deadline), tokens, tuple(assume))
    return choose(question(**changes), wish)


@cache
def one_by_one(on, tokens="10B", assume=()):
    """How every cluster stands, each searched in full by itself."""
    terms = parse_terms(tokens, assume)
    found = []
    for offer in offers(on):
        asked = header(MODEL, offer.on, batch=BATCH)
        setting = setting_of(asked)
        cluster = terms.assumed.on(offer.cluster)
        setting = type(setting)(setting.model, cluster, setting.workload, setting.stack)
        try:
            best = answer(PlanRequest(asked, KEEP, top=1), setting).fastest
        except InfeasibleError:
            continue
        course = TrainingCost.of(setting, terms)
        found.append(RankedCluster(offer, course, "searched", best.report.step_time_s, best.plan))
    return found


def measure(standing, objective):
    """What an objective makes of a standing."""
    return OBJECTIVES[objective].measure(standing.course, standing.step_s)
