"""One question of several models: rows in order, the largest within the limits, and refusals."""

import pytest
from cluster_questions import KEEP, chosen
from planning_questions import header

from meshwright.economy.budget_and_deadline import Limits
from meshwright.errors import InfeasibleError, InputError
from meshwright.verbs.plan.clusters.choose_model import choose_model
from meshwright.verbs.plan.clusters.cluster_request import ClusterChoiceRequest
from meshwright.verbs.plan.plan_on_cluster import PlanRequest

ON = ("h100-sxm-80gb x 8", "h100-sxm-80gb x 16")
SMALL, LARGE, HUGE = "llama-3.2-1b", "llama-3.1-8b", "llama-3.1-405b"


def asked(*models, deadline=None, tokens="10B"):
    questions = [PlanRequest(header(model, "several", batch=24), KEEP, top=1) for model in models]
    return choose_model(questions, ClusterChoiceRequest(ON, "cost", Limits(deadline_days=deadline), tokens))


def test_the_largest_that_keeps_the_limits_is_planned():
    usual = asked(SMALL, LARGE)
    assert usual.to_json()["largest"] == LARGE
    days = min(row["days"] for row in usual.table if row["model"] == LARGE and row["state"] == "searched")
    data = asked(LARGE, HUGE, SMALL, deadline=days / 2).to_json()
    assert data["largest"] == SMALL
    assert [row["model"] for row in data["models"]] == [LARGE, HUGE, SMALL]
    assert [row["meets"] for row in data["models"]] == [False, False, True]
    large, huge, small = data["models"]
    assert large["misses"]["days"] == pytest.approx(large["predict"]["training"]["days"]["value"] - days / 2)
    assert (huge["cluster"], huge["plan"], huge["predict"]) == (None, None, None)
    assert large["parameters"] > small["parameters"]
    assert data["plans"][0]["plan"]["model"] == SMALL
    assert data["plans"][0]["plan"] == small["plan"]


def test_an_answer_is_that_of_the_separate_question():
    found = asked(SMALL, LARGE).rows[0].choice
    alone = chosen(*ON, objective="cost")
    assert [one.plan for one in found.proposals] == [one.plan for one in alone.proposals]


def test_where_none_keeps_the_limits_each_has_a_reason():
    with pytest.raises(InfeasibleError) as caught:
        asked(SMALL, LARGE, deadline=0.0001)
    assert [reason.split(":")[0] for reason in caught.value.reasons] == [SMALL, LARGE]


def test_all_wrong_models_are_named_at_once():
    with pytest.raises(InputError) as caught:
        asked("no-such-model", SMALL, "nor-this-one")
    assert [problem.value for problem in caught.value.problems] == ["no-such-model", "nor-this-one"]
