"""Bounds of many clusters at once, against those of each cluster by itself."""

from dataclasses import replace

import numpy as np
import pytest
from cluster_questions import MODEL
from planning_questions import header

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import offers
from meshwright.economy.cluster_row import cluster_row
from meshwright.economy.objectives import OBJECTIVES
from meshwright.economy.tokens_and_assumptions import parse_terms
from meshwright.economy.training_cost import TrainingCost
from meshwright.search.space.legal_plans import DEGREES, factorisations, raw_plans
from meshwright.verbs.plan.clusters.best_plan import best_plan
from meshwright.verbs.plan.clusters.candidate_cluster import CandidateCluster, FoundPlans
from meshwright.verbs.plan.clusters.cluster_bounds import bound_clusters
from meshwright.verbs.plan.clusters.proposal_cost import PricedAnswer
from meshwright.verbs.plan.clusters.rank_clusters import rank_clusters
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, setting_of
from meshwright.verbs.plan.search_space import search_scope, searched_schedules

FEW = {"cp": 1, "recompute": "none", "micro_batch": 1}
QUESTIONS = {
    "dense": (MODEL, "megatron-core", ("h100-sxm-80gb x <=40",), {"recompute": "none", "pp": 1}, None),
    "large domains": (
        MODEL,
        "megatron-core",
        ("gb200 x <=24",),
        {"recompute": "none", "micro_batch": 1},
        None,
    ),
    "experts": (
        "mixtral-8x7b",
        "megatron-core",
        ("h200-sxm-141gb x <=16",),
        {"micro_batch": 1, "cp": 1},
        None,
    ),
    "two kinds": (MODEL, "megatron-core", ("a100-sxm-80gb x <=24", "h100-sxm-80gb x <=16"), FEW, None),
    "some without forms": (MODEL, "meshwright", ("h100-sxm-80gb x <=4",), FEW, "1f1b,zb-h1"),
}
AIM = OBJECTIVES["cost"]


def contenders(model, stack, on, keep, schedules, batch=24):
    """Every cluster on offer with its question."""
    terms = parse_terms("10B", ("failures_per_1000_node_days=40",))
    first = setting_of(header(model, offers(on)[0].on, batch=batch, stack=stack))
    found = []
    for offer in offers(on):
        setting = replace(first, cluster=terms.assumed.on(offer.cluster))
        scope = search_scope(keep, schedules, 1, setting)
        asked = header(model, offer.on, batch=batch, stack=stack)
        question = PlanRequest(
            asked, tuple(f"{key}={value}" for key, value in keep.items()), 1, schedules=schedules
        )
        found.append(CandidateCluster(offer, question, TrainingCost.of(setting, terms), scope))
    return found


@pytest.fixture(scope="module", params=list(QUESTIONS))
def every(request):
    """The clusters of a question."""
    return contenders(*QUESTIONS[request.param])


def asked(clusters):
    return [(one.scope, one.course.setting) for one in clusters]


def plans_of(bounds):
    """Columns of all bounded plans, by their values."""
    plans = bounds.space.every(*np.divmod(bounds.rows, max(1, len(bounds.space.base)))).plans
    return {
        name: [plans.values[name][int(code)] for code in column] if name in plans.values else column.tolist()
        for name, column in plans.columns.items()
    }


@pytest.mark.quick_cases(3)
def test_they_are_those_of_each_cluster_by_itself(every):
    together = bound_clusters(asked(every))
    for question, found in zip(asked(every), together, strict=True):
        (alone,) = bound_clusters([question])
        assert (found.least_s, found.others_s) == (alone.least_s, alone.others_s)
        assert found.floors.tolist() == alone.floors.tolist()
        assert plans_of(found) == plans_of(alone)


@pytest.mark.quick_cases(1)
def test_few_plans_are_remembered_and_the_best_is_found_anyhow(every):
    for question, few in zip(asked(every), bound_clusters(asked(every), kept=3), strict=True):
        (whole,) = bound_clusters([question], kept=None)
        assert whole.others_s == np.inf
        assert few.least_s == whole.least_s
        assert len(few.floors) <= len(whole.floors)
        left = np.sort(whole.floors)[len(few.floors) :]
        assert few.others_s == left.min(initial=np.inf)
        best, again = (best_plan(*question, np.inf, bounds) for bounds in (few, whole))
        assert (best is None) == (again is None)
        if best is not None:
            assert best.step_s == again.step_s
            assert (
                best.plans.take(np.array([best.row])).columns
                == again.plans.take(np.array([again.row])).columns
            )


def fresh(every):
    """The clusters without answers of earlier rankings."""
    return [replace(one, found=FoundPlans()) for one in every]


def rows(ranking):
    """What the answer says of each cluster."""
    standings = (one.standing if isinstance(one, PricedAnswer) else one for one in ranking)
    return [cluster_row(standing, Limits()) for standing in standings]


@pytest.mark.quick_cases(1)
def test_standings_are_those_of_clusters_that_are_bounded_one_by_one(every, monkeypatch):
    together = rows(rank_clusters(fresh(every), AIM, Limits()))

    def one_by_one(questions, done=None):
        return [bound_clusters([question])[0] for question in questions]

    monkeypatch.setattr("meshwright.verbs.plan.clusters.rank_clusters.bound_clusters", one_by_one)
    alone = rows(rank_clusters(fresh(every), AIM, Limits()))
    assert together == alone


@pytest.mark.quick_cases(1)
def test_progress_goes_up_to_the_end(every):
    parts = []
    bound_clusters(asked(every), parts.append)
    assert parts == sorted(parts)
    assert parts[-1] == pytest.approx(1)


def test_raw_plans_count_every_ordered_factorisation():
    for one in contenders(*QUESTIONS["dense"]):
        setting = one.course.setting
        of_each, rest = divmod(
            raw_plans(setting, one.scope.keep, searched_schedules(one.scope, setting)),
            len(factorisations(setting.cluster.devices, len(DEGREES))),
        )
        assert rest == 0
        assert of_each > 0
