"""The choice among clusters, against searching each of them by itself; limits; laws that hold for any of them."""

from dataclasses import replace
from math import inf

import pytest
from cluster_questions import BATCH, KEEP, MODEL, chosen, measure, one_by_one
from hypothesis import given
from hypothesis import strategies as st
from planning_questions import header

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import pareto_front, ranked
from meshwright.economy.objectives import OBJECTIVES
from meshwright.errors import InfeasibleError, InputError
from meshwright.verbs.plan.clusters import candidate_cluster
from meshwright.verbs.plan.clusters.choose_cluster import choose
from meshwright.verbs.plan.clusters.cluster_request import ClusterChoiceRequest
from meshwright.verbs.plan.clusters.infeasible import NoClusterError
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer
from meshwright.verbs.plan.solver_schedules import SolverOptions

RANGE = ("h100-sxm-80gb x <=48",)
MIXED = ("h100-sxm-80gb x <=24", "a100-sxm-80gb x <=16", "mi300x x 8", "l40s x 8")
SPARES = ("spare_nodes=1", "failures_per_1000_node_days=400", "repair_hours=48")
CASES = [(RANGE, ()), (MIXED, ()), (RANGE, SPARES)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("on", "assume", "objective"), [(*case, objective) for case in CASES for objective in OBJECTIVES]
)
def test_the_best_is_the_best_of_all_searched_one_by_one(on, assume, objective):
    every = [measure(standing, objective) for standing in one_by_one(on, assume=assume)]
    least = min(value for value in every if value is not None)
    found = chosen(*on, objective=objective, assume=assume)
    best = next(s for s in found.standings if s.offer.on == found.proposals[0].plan.cluster)
    assert measure(best, objective) == pytest.approx(least, rel=1e-9)
    assert best.step_s == found.proposals[0].report.step_time_s


@pytest.mark.slow
@pytest.mark.parametrize(("on", "assume"), CASES[::-1])
def test_the_pareto_set_is_that_of_all_searched_one_by_one(on, assume):
    found = chosen(*on, assume=assume)
    expected = pareto_front(one_by_one(on, assume=assume))
    assert [s.offer.on for s in pareto_front(found.standings)] == [s.offer.on for s in expected]
    for mine, other in zip(pareto_front(found.standings), expected, strict=True):
        assert mine.point == pytest.approx(other.point, rel=1e-9)


def test_bounds_spare_searches_and_say_so(monkeypatch):
    searched = []
    plain = candidate_cluster.best_plan
    monkeypatch.setattr(candidate_cluster, "best_plan", lambda *args: searched.append(1) or plain(*args))
    found = chosen.__wrapped__(*RANGE)
    states = [standing.state for standing in found.standings]
    assert 0 < states.count("searched") <= len(searched) < len(states)
    assert "beaten" in states
    for standing in found.standings:
        if standing.state == "beaten":
            assert "no worse in time, money, energy" in standing.why
            assert standing.step_s > 0
    real = {standing.offer.on: standing.step_s for standing in one_by_one(RANGE)}
    assert all(s.step_s <= real[s.offer.on] * (1 + 1e-9) for s in found.standings if s.offer.on in real)


@pytest.fixture(scope="module")
def stood():
    """How clusters of two devices stand: known prices, and failures."""
    return chosen(*MIXED, assume=SPARES).standings


BUDGETS, DEADLINES, MORE = st.floats(1.0, 1e5), st.floats(0.01, 1000.0), st.floats(0.0, 1e5)


def value(standings, objective, limits):
    """What the best is worth; infinite where none keeps to the limits."""
    best = ranked(standings, OBJECTIVES[objective], limits)
    return measure(best[0], objective) if best else inf


@given(
    budget=BUDGETS, more=MORE, deadline=DEADLINES, later=MORE, objective=st.sampled_from(sorted(OBJECTIVES))
)
def test_more_money_or_more_time_is_never_worse(stood, budget, more, deadline, later, objective):
    usual = value(stood, objective, Limits(budget, deadline))
    assert value(stood, objective, Limits(budget + more, deadline)) <= usual
    assert value(stood, objective, Limits(budget, deadline + later)) <= usual
    assert value(stood, objective, Limits(None, deadline)) <= usual
    assert value(stood, objective, Limits(budget, None)) <= usual


@given(budget=BUDGETS, deadline=DEADLINES, objective=st.sampled_from(sorted(OBJECTIVES)))
def test_the_best_within_limits_is_found_though_clusters_were_spared(stood, budget, deadline, objective):
    every = [s for s in one_by_one(MIXED, assume=SPARES) if Limits(budget, deadline).met(s.costs)]
    values = [known for s in every if (known := measure(s, objective)) is not None]
    assert value(stood, objective, Limits(budget, deadline)) == pytest.approx(
        min(values, default=inf), rel=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_more_devices_are_never_worse(objective):
    values = []
    for most in (8, 16, 48):
        found = chosen(f"h100-sxm-80gb x <={most}", objective=objective, assume=SPARES)
        values.append(value(found.standings, objective, Limits()))
    assert values == sorted(values, reverse=True)


@pytest.mark.slow
def test_objectives_differ_in_clusters():
    best = {
        objective: chosen(*RANGE, objective=objective, assume=SPARES).proposals[0].plan.cluster
        for objective in OBJECTIVES
    }
    assert best["throughput"] == "h100-sxm-80gb x 48"
    assert len(set(best.values())) > 1


def test_one_cluster_has_the_same_answer_as_ever():
    found = chosen("h100-sxm-80gb x 16", top=3)
    usual = answer(PlanRequest(header(MODEL, "h100-sxm-80gb x 16", batch=BATCH), KEEP, top=3))
    assert [p.plan for p in found.proposals] == [p.plan for p in usual.proposals]
    data, before = found.to_json(), usual.to_json()
    assert data.keys() >= before.keys()
    assert {key: data[key] for key in before if key not in ("plans", "search_time_s")} == {
        key: before[key] for key in before if key not in ("plans", "search_time_s")
    }
    assert [row["cluster"] for row in data["pareto"]] == ["h100-sxm-80gb x 16"]
    assert data["clusters"][0]["step_time_s"] == data["plans"][0]["predict"]["step_time_s"]
    assert [row["cluster"] for row in data["families"]] == ["h100-sxm-80gb x 16"]


def test_the_plans_are_the_best_of_each_cluster_by_the_objective():
    found = chosen(*MIXED, objective="cost", top=3)
    stood = {standing.offer.on: standing for standing in found.standings}
    usd = [stood[proposal.plan.cluster].costs.usd for proposal in found.proposals]
    assert usd == sorted(usd)
    assert len({proposal.plan.cluster for proposal in found.proposals}) == 3
    for proposal, least in zip(found.proposals, usd, strict=True):
        assert proposal.report.training["usd"]["value"] >= least * (1 - 1e-9)


def test_a_plan_that_would_break_a_limit_is_not_recommended():
    on = "a100-sxm4-80gb x 8"
    asked = PlanRequest(header("llama-3.1-8b", on, seq_len=8192, batch=128), ("recompute=none",), top=1)
    free = choose(asked, ClusterChoiceRequest((on,), tokens="1B"))
    fastest, first = free.fastest.report.step_time_s, free.proposals[0].report.step_time_s
    assert fastest < first, "the question must have a plan that is faster than the recommended one"
    days = free.proposals[0].report.training["days"]["value"] * (fastest / first + 1) / 2
    limited = choose(asked, ClusterChoiceRequest((on,), "throughput", Limits(deadline_days=days), "1B"))
    assert limited.proposals[0].plan == free.fastest.plan


def test_where_no_plan_keeps_the_limits_the_nearest_is_named():
    on = "a100-sxm4-80gb x 8"
    asked = PlanRequest(header("llama-3.1-8b", on, seq_len=8192, batch=128), ("recompute=none",), top=1)
    quickest = replace(asked, recommend="fastest")
    days = (
        choose(quickest, ClusterChoiceRequest((on,), tokens="1B"))
        .proposals[0]
        .report.training["days"]["value"]
    )
    with pytest.raises(NoClusterError) as caught:
        choose(asked, ClusterChoiceRequest((on,), "throughput", Limits(deadline_days=days / 2), "1B"))
    (row,) = caught.value.details["families"]
    assert not row["meets"]
    assert row["misses"]["days"] == pytest.approx(days / 2)


def test_prices_of_a_list_count(tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text(
        "on,usd_per_device_hour\na100-sxm-80gb x 8,0.10\nh100-sxm-80gb x 8,90\n", encoding="utf-8"
    )
    cheap = chosen(str(file), objective="cost")
    assert cheap.proposals[0].plan.cluster == "a100-sxm-80gb x 8"
    assert cheap.proposals[0].report.usd_per_hour == pytest.approx(0.8)
    assert "prices.csv" in cheap.proposals[0].report.origin["usd_per_hour"]
    assert chosen(str(file), objective="throughput").proposals[0].plan.cluster == "h100-sxm-80gb x 8"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("on", [RANGE, ("h100-sxm-80gb x 16",)])
def test_limits_that_nothing_keeps_to(on):
    with pytest.raises(InfeasibleError) as caught:
        chosen(*on, budget=1.0, deadline=0.0001)
    assert "budget of 1 USD and the deadline of 0.0001 days" in caught.value.message
    assert caught.value.reasons
    assert not ranked(chosen(*on).standings, OBJECTIVES["cost"], Limits(1.0, 0.0001))
    _does(caught.value.suggestion.split(" would do")[0], on)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("limits", [{"budget": 20.0}, {"deadline": 0.01}, {"budget": 1e6, "deadline": 0.01}])
def test_the_nearest_limits_do(limits):
    with pytest.raises(InfeasibleError) as caught:
        chosen(*RANGE, **limits)
    for one in caught.value.suggestion.split(" or "):
        _does(one.split(" would do")[0], RANGE, **limits)


def _does(options, on, **limits):
    words = options.split()
    suggested = {
        name.removeprefix("--"): float(number) for name, number in zip(words[::2], words[1::2], strict=True)
    }
    assert chosen(*on, **limits | suggested).proposals


@pytest.mark.slow
def test_clusters_that_are_all_too_small():
    with pytest.raises(InfeasibleError) as caught:
        choose(
            question_of("llama-3.1-405b"), ClusterChoiceRequest(("h100-sxm-80gb x 8", "a100-sxm-40gb x <=8"))
        )
    assert "fits on any of 5 clusters" in caught.value.message
    assert "a100-sxm-40gb x" in caught.value.suggestion


def question_of(model):
    return PlanRequest(header(model, "several", batch=BATCH), top=1)


def test_an_objective_that_nobody_can_measure():
    with pytest.raises(InputError) as caught:
        chosen("mi300x x 8", objective="goodput")
    (problem,) = caught.value.problems
    assert problem.rule == "no rate of failures is known of mi300x"
    assert chosen("mi300x x 8", objective="goodput", assume=("failures_per_1000_node_days=3",)).proposals
    mixed = chosen("mi300x x 8", "h100-sxm-80gb x 4", objective="goodput")
    assert [p.plan.cluster for p in mixed.proposals] == ["h100-sxm-80gb x 4"]


@pytest.mark.slow
def test_a_training_that_never_ends_is_no_answer():
    stuck = ("failures_per_1000_node_days=1e9",)
    assert chosen(*RANGE, assume=stuck).proposals[0].report.training["days"] is None
    with pytest.raises(InfeasibleError, match="where it is known"):
        chosen(*RANGE, assume=stuck, objective="time")


def test_everything_wrong_is_said_at_once():
    wish = ClusterChoiceRequest(("h100 x <=0", "h1000 x 8"), "speed", Limits(-1.0, 3.0), None, ("spares=1",))
    with pytest.raises(InputError) as caught:
        choose(PlanRequest(header(MODEL, "several", batch=BATCH), ("tp=x",), 0), wish)
    fields = [problem.field for problem in caught.value.problems]
    assert sorted(fields) == sorted(
        ["assume", "objective", "budget", "cluster.count", "cluster.device", "keep.tp", "top"]
    )


def test_a_problem_with_a_mapping_as_its_value_is_said_once(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text("pools:\n- {device: {like: h100-sxm-80gb, extra: {a: 1}}, count: 8}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        chosen(str(file), "h100-sxm-80gb x 8")
    (problem,) = caught.value.problems
    assert problem.field == "pools.0.device.extra"


def test_limits_are_of_a_whole_training():
    with pytest.raises(InputError) as caught:
        chosen(*RANGE, tokens=None, budget=5.0, deadline=float("nan"))
    assert [problem.field for problem in caught.value.problems] == ["budget", "deadline", "deadline"]


def test_what_is_for_one_cluster_is_refused_on_several():
    with pytest.raises(InputError) as caught:
        chosen(*RANGE, stages="time", solving=SolverOptions(seconds=1.0))
    of_several = [problem for problem in caught.value.problems if "is for one cluster" in problem.rule]
    assert [problem.field for problem in of_several] == ["stages", "solve"]


def test_schedules_without_closed_forms_have_no_bound_and_are_searched():
    found = chosen("h100-sxm-80gb x <=4", keep=("schedule=zb-h1", "pp=2"), stack="meshwright")
    assert {standing.state for standing in found.standings} <= {"searched", "nothing is legal"}
    assert found.proposals[0].plan.pipeline.schedule == "zb-h1"
