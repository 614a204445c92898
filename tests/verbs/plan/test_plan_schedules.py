"""Searches over schedules: never worse for looking at more, and equal to predicting every plan."""

from dataclasses import replace

import numpy as np
import pytest
from planning_questions import header, planned

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.errors import InfeasibleError, InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.schedules.choice import ScheduleChoice
from meshwright.search.algorithms import expensive_best_first
from meshwright.search.algorithms.exhaustive import TIE
from meshwright.verbs.plan.plan_on_cluster import setting_of
from meshwright.verbs.plan.search_space import search_scope, searched_space

SMALL = [
    pytest.param("llama-3.2-1b", "a100-sxm-40gb x 4", "meshwright", 8, {}, marks=pytest.mark.slow),
    ("llama-3.1-8b", "a100-sxm-40gb x 8", "megatron-zero-bubble", 32, {"tp": 2}),
    pytest.param(
        *("llama-3.1-8b", "a100-sxm-80gb x 8", "generic", 16, {"pp": 4, "tp": 1}), marks=pytest.mark.slow
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "cluster", "stack", "batch", "keep"), SMALL)
def test_auto_is_the_best_of_all_plans_of_all_schedules_and_never_worse(model, cluster, stack, batch, keep):
    question = header(model, cluster, batch=batch, stack=stack)
    setting = setting_of(question)
    space = searched_space(search_scope(keep, "auto", 5, setting), setting)
    scores = evaluate(space.plans, setting, only_fitting=True)
    kept = [f"{name}={value}" for name, value in keep.items()]
    usual, auto = (
        planned(model, cluster, *kept, batch=batch, stack=stack, schedules=s) for s in (None, "auto")
    )
    best = auto.fastest.report.step_time_s
    assert best <= usual.fastest.report.step_time_s * (1 + TIE)
    assert best == pytest.approx(np.min(scores.step_s[scores.fits]), rel=TIE)
    assert auto.legal == len(scores.step_s)
    assert auto.considered == auto.feasible + sum(auto.rejected.values())


DUALPIPE = ("gpt-3-175b", "pp=32", "tp=4", "cp=1", "recompute=none", "micro_batch=2", "vocabulary=none")


def dualpipe_question(cluster, monkeypatch, schedules="auto"):
    """What holds parameters twice, with work for a few lists only."""
    monkeypatch.setattr(expensive_best_first, "MOST_PASSES", 1_200_000)
    model, *kept = DUALPIPE
    return planned.__wrapped__(
        model, cluster, *kept, seq_len=2048, batch=1536, stack="meshwright", schedules=schedules
    )


@pytest.mark.slow
def test_auto_finds_a_plan_that_holds_parameters_twice_where_there_is_room(monkeypatch):
    found = dualpipe_question("a100-sxm-80gb x 1024", monkeypatch)
    assert found.proposals[0].plan.pipeline.schedule == "dualpipe"
    assert found.unplayed == 0


@pytest.mark.slow
def test_and_refuses_it_where_there_is_none(monkeypatch):
    found = dualpipe_question("a100-sxm-40gb x 1024", monkeypatch)
    assert {proposal.plan.pipeline.schedule for proposal in found.proposals} == {"v-min"}
    assert found.unplayed == 0
    with pytest.raises(InfeasibleError, match=r"No plan .* fits on") as caught:
        dualpipe_question("a100-sxm-40gb x 1024", monkeypatch, "dualpipe")
    assert "the plan with the smallest states holds" in str(caught.value)
    assert "played" not in str(caught.value)


@pytest.mark.slow
def test_a_lean_plan_is_found_among_many_that_are_too_large():
    """A long pipeline of a sparse model: most schedules that would be quicker hold too much."""
    cluster = "h100-sxm-80gb x 512"
    kept = ("pp=32", "recompute=none", "tp=2", "cp=2", "ep=8", "micro_batch=1", "sharding=zero1")
    usual, auto = (
        planned("deepseek-v3", cluster, *kept, seq_len=4096, batch=1024, stack="meshwright", schedules=s)
        for s in (None, "auto")
    )
    assert auto.fastest.plan.pipeline.choice.name in ("zb-h1", "zero-bubble")
    assert auto.fastest.report.step_time_s < 0.93 * usual.fastest.report.step_time_s


def test_a_schedule_that_is_kept_is_one_that_is_named():
    arguments = ("llama-3.1-8b", "a100-sxm-80gb x 8", "pp=4", "tp=2")
    kept = planned(*arguments, "schedule=zb-h1", stack="generic")
    named = planned(*arguments, stack="generic", schedules="zb-h1")
    assert {proposal.plan.pipeline.schedule for proposal in kept.proposals} == {"zb-h1"}
    drop = ("search_time_s",)
    one, other = ({k: v for k, v in a.to_json().items() if k not in drop} for a in (kept, named))
    assert one == other


def test_plans_with_knobs_come_as_files_that_say_them():
    kept = ("pp=4", "tp=1", "recompute=none", "micro_batch=1")
    options = {"seq_len": 4096, "batch": 8, "stack": "meshwright"}
    answer = planned("llama-3.2-1b", "a100-sxm-40gb x 4", *kept, schedules="auto", top=20, **options)
    turned = [p for p in answer.proposals if not p.plan.pipeline.choice.usual]
    assert turned
    for proposal in turned:
        assert parse_plan(proposal.to_yaml()) == proposal.plan


def test_reasons_name_the_schedule_that_comes_next():
    kept = ("pp=4", "micro_batch=1")
    answer = planned("llama-3.2-1b", "a100-sxm-80gb x 4", *kept, stack="generic", schedules="zb-v,1f1b,zb-h1")
    (reason,) = [r for r in answer.proposals[0].reasons if r.field == "schedule"]
    others = {"zb-v", "1f1b", "zb-h1"} - {reason.value}
    assert all(f"schedule {name}: " in reason.text for name in others)
    assert "slower" in reason.text


def test_a_schedule_can_be_said_once():
    with pytest.raises(InputError, match="said twice"):
        planned("llama-3.1-8b", "a100-sxm-80gb x 8", "schedule=1f1b", schedules="gpipe")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("schedules", ["zb-v,1f1b", "auto"])
def test_a_limit_that_is_kept_leaves_schedules_that_have_one(schedules):
    kept = ("pp=4", "tp=1", "micro_batch=1", "memory_limit=0.6")
    found = planned("llama-3.2-1b", "a100-sxm-80gb x 4", *kept, stack="meshwright", schedules=schedules)
    every = [proposal.plan.pipeline.choice for proposal in found.proposals]
    choices = {replace(choice, vocabulary=None, step_validation=None) for choice in every}
    assert choices <= {
        ScheduleChoice("zb-v", memory_limit=0.6),
        ScheduleChoice("zero-bubble", memory_limit=0.6),
    }
    assert choices


def test_a_unit_that_is_kept_may_be_any_that_the_schedule_can_have():
    kept = ("pp=4", "tp=1", "unit=12", "schedule=zeropp", "virtual_stages=2")
    found = planned("llama-3.2-1b", "a100-sxm-80gb x 4", *kept, stack="meshwright")
    assert {proposal.plan.pipeline.choice for proposal in found.proposals} == {
        ScheduleChoice("zeropp", unit=12)
    }


def test_passes_in_flight_that_are_kept_hold_for_every_plan():
    kept = ("pp=4", "tp=1", "micro_batch=1", "in_flight=3")
    found = planned("llama-3.1-8b", "a100-sxm-80gb x 8", *kept, stack="meshwright")
    plans = [proposal.plan.pipeline for proposal in found.proposals]
    assert {pipeline.choice for pipeline in plans} <= {
        ScheduleChoice("1f1b", in_flight=3),
        ScheduleChoice("interleaved-1f1b", in_flight=3),
    }
    assert plans
    assert all(pipeline.virtual_stages <= 3 for pipeline in plans)


@pytest.mark.parametrize("stack", ["meshwright", "megatron-core"])
def test_knobs_that_no_schedule_has_are_refused(stack):
    with pytest.raises(InputError) as caught:
        planned("llama-3.1-8b", "a100-sxm-80gb x 8", "memory_limit=0.5", stack=stack, schedules="1f1b")
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("keep.memory_limit", 0.5)


@pytest.mark.parametrize("value", ["0", "-1", "much", "nan", "inf", ""])
def test_a_limit_is_a_number(value):
    with pytest.raises(InputError, match="number above 0"):
        planned("llama-3.1-8b", "a100-sxm-80gb x 8", f"memory_limit={value}", stack="meshwright")


def test_all_problems_of_a_question_come_at_once():
    with pytest.raises(InputError) as caught:
        planned("llama-3.1-8b", "a100-sxm-80gb x 8", "tensor=2", schedules="zb-w", top=0)
    assert {problem.field for problem in caught.value.problems} == {"top", "keep", "schedule"}


def test_named_schedules_without_a_pipeline_are_none():
    kept = ("micro_batch=1", "tp=1")
    answer = planned("llama-3.2-1b", "a100-sxm-80gb x 4", *kept, stack="generic", schedules="gpipe")
    assert {p.plan.pipeline.choice for p in answer.proposals} == {ScheduleChoice("gpipe")}
    assert all(p.plan.layout.pp > 1 for p in answer.proposals)


@pytest.mark.parametrize("asked", [{"schedules": "zb-v"}, {"schedules": "zb-h1,dualpipe"}])
def test_a_schedule_without_a_pipeline_is_refused(asked):
    with pytest.raises(InputError, match=r"a schedule needs pp > 1, and keep.pp = 1"):
        planned("llama-3.1-8b", "a100-sxm-80gb x 8", "pp=1", stack="generic", **asked)
    with pytest.raises(InputError, match=r"keep.schedule = 'zb-v'.* needs pp > 1"):
        planned("llama-3.1-8b", "a100-sxm-80gb x 8", "pp=1", "schedule=zb-v", stack="generic")
    kept = ("pp=1", "tp=1", "micro_batch=1")
    assert planned("llama-3.2-1b", "a100-sxm-80gb x 8", *kept, stack="generic", schedules="1f1b,zb-h1")
