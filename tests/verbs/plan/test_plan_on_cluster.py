"""The planner's answers against looking at every plan by itself."""

from itertools import pairwise

import pytest
from planning_questions import header, planned

from meshwright.cost.plan_report import closed_form, report
from meshwright.cost.uncertainty.step_error import plan_errors
from meshwright.errors import InfeasibleError, InputError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.check_plan import check_plan
from meshwright.search.algorithms import expensive_best_first
from meshwright.search.algorithms.exhaustive import TIE
from meshwright.verbs.plan.plan_on_cluster import (
    FAR_TOO_LARGE,
    SLOWER,
    TOO_LARGE,
    PlanRequest,
    answer,
    parse_keep,
    setting_of,
)
from meshwright.verbs.plan.search_space import search_scope, searched_space

SMALL = [
    ("llama-3.2-1b", "a100-sxm-40gb x 4", "megatron-core", 4),
    ("llama-3.1-8b", "a100-sxm-80gb x 6", "torchtitan", 6),
    ("gpt-oss-20b", "h200-sxm-141gb x 4", "deepspeed", 4),
]
TWO_POOLS = """\
name: two kinds
pools:
  - {name: fast, device: h100-sxm-80gb, count: 8}
  - {name: slow, device: a100-sxm-80gb, count: 8}
"""


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("model", "cluster", "stack", "batch"), SMALL[::-1])
def test_the_best_plan_is_the_best_of_all_plans_predicted_one_by_one(model, cluster, stack, batch):
    question = header(model, cluster, batch=batch, stack=stack)
    setting = setting_of(question)
    plans = searched_space(search_scope({}, None, 5, setting), setting).plans
    reports = []
    for row, error in enumerate(plan_errors(plans, setting)):
        short = short_plan(plans, row, question)
        long = expand(short, setting.model.architecture)
        reports.append(report(long, closed_form(short, setting), setting, error))
    fitting = [r for r in reports if r.fits]
    answer = planned(model, cluster, batch=batch, stack=stack)
    assert answer.legal == len(reports)
    unfit = sum(answer.rejected.get(reason, 0) for reason in (FAR_TOO_LARGE, TOO_LARGE))
    assert unfit <= len(reports) - len(fitting)
    assert answer.feasible + unfit + answer.rejected.get(SLOWER, 0) == len(reports)
    assert 0 < answer.feasible <= min(answer.evaluated, len(fitting))
    fastest = min(r.step_time_s for r in fitting)
    tied = [r for r in fitting if r.step_time_s <= fastest * (1 + TIE)]
    best = answer.fastest.report
    assert best.step_time_s <= fastest * (1 + TIE + 1e-9)
    assert best.memory_bytes["total"] == min(r.memory_bytes["total"] for r in tied)


QUESTIONS = [
    ("gpt-oss-20b", "mi300x x 8", "megatron-core"),
    ("llama-3.1-70b", "h100-sxm-80gb x 64", "megatron-core"),
    ("llama-3.1-70b", "h100-sxm-80gb x 64", "torchtitan"),
    ("llama-3.1-8b", "h100-sxm-80gb x 24", "megatron-core"),
    ("mixtral-8x7b", "a100-sxm-80gb x 32", "megatron-core"),
    ("qwen3-30b-a3b", "h100-sxm-80gb x 16", "torchtitan"),
    ("deepseek-v2", "h800-sxm-80gb x 64", "megatron-core"),
    ("gpt-22b", "a100-sxm-80gb x 8", "megatron-lm-2022"),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("model", "cluster", "stack"), QUESTIONS)
def test_proposals_are_legal_fit_and_are_sorted(model, cluster, stack):
    answer = planned(model, cluster, batch=96, stack=stack, top=8, recommend="fastest")
    setting = setting_of(header(model, cluster, batch=96, stack=stack))
    assert 0 < len(answer.proposals) <= 8
    times = [proposal.report.step_time_s for proposal in answer.proposals]
    assert all(later >= earlier * (1 - 2 * TIE) for earlier, later in pairwise(times))
    for proposal in answer.proposals:
        long = expand(proposal.plan, setting.model.architecture)
        problems = check_plan(long, setting.model, setting.cluster, setting.stack)
        assert not [problem for problem in problems if problem.severity == "error"]
        assert proposal.report.fits
        assert parse_plan(proposal.to_yaml()) == proposal.plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "cluster", "stack", "target"),
    [(m, c, s, "megatron" if s == "megatron-core" else s) for m, c, s in QUESTIONS[:7]],
)
def test_the_best_plan_can_be_exported_to_its_own_stack(model, cluster, stack, target):
    best = planned(model, cluster, batch=96, stack=stack, top=8).proposals[0].plan
    setting = setting_of(best)
    long = expand(best, setting.model.architecture)
    assert TARGETS[target](long, setting.model, setting.cluster, setting.stack).files


def test_what_is_kept_is_in_every_proposal():
    keep = ("pp=2", "sharding=zero1", "recompute = full", "micro_batch=1")
    answer = planned("llama-3.1-8b", "h100-sxm-80gb x 16", *keep)
    assert answer.proposals
    for proposal in answer.proposals:
        plan = proposal.plan
        assert (plan.layout.pp, plan.pipeline.micro_batch) == (2, 1)
        assert (plan.sharding, plan.recompute) == ("zero1", "full")
        assert not {"pp", "sharding", "recompute", "micro_batch"} & {r.field for r in proposal.reasons}


def test_a_schedule_that_holds_parameters_twice_is_tried_when_it_is_asked_for():
    found = planned("llama-3.2-1b", "h100-sxm-80gb x 8", "schedule=dualpipe", stack="generic")
    assert found.proposals
    for proposal in found.proposals:
        plan = proposal.plan
        assert (plan.pipeline.schedule, plan.pipeline.virtual_stages) == ("dualpipe", 2)
        setting = setting_of(plan)
        long = expand(plan, setting.model.architecture)
        problems = check_plan(long, setting.model, setting.cluster, setting.stack)
        assert not [problem for problem in problems if problem.severity == "error"]


def test_schedules_with_a_fixed_number_of_stages_may_have_uneven_ones():
    """16 layers on 3 ranks; interleaving takes stages that are even with embedding and head counted as layers."""
    question, options = ("llama-3.2-1b", "h100-sxm-80gb x 6"), {"stack": "meshwright", "batch": 24}
    found = planned(*question, "schedule=v-half", "pp=3", "tp=2", **options)
    assert {proposal.plan.pipeline.virtual_stages for proposal in found.proposals} == {2}
    kept = ("schedule=interleaved-1f1b", "pp=3", "tp=2")
    found = planned(*question, *kept, **options)
    assert {proposal.plan.pipeline.virtual_stages for proposal in found.proposals} <= {2, 3}
    with pytest.raises(InfeasibleError, match="unequal shares of 16 layers"):
        planned(*question, *kept, "virtual_stages=4", **options)


@pytest.mark.slow
def test_what_was_not_played_is_counted_and_not_said_not_to_fit(monkeypatch):
    cluster = "h100-sxm-80gb x 8"
    assert (
        planned.__wrapped__("llama-3.1-8b", cluster, "schedule=zb-v", "tp=2", stack="meshwright").unplayed
        == 0
    )
    monkeypatch.setattr(expensive_best_first, "MOST_PASSES", 0)
    with pytest.raises(InfeasibleError, match="that may fit were not played") as caught:
        planned.__wrapped__("llama-3.1-8b", cluster, "schedule=zb-v", "tp=2", stack="meshwright")
    assert "--keep" in caught.value.suggestion
    assert "leanest" not in str(caught.value)
    asked = PlanRequest(header("llama-3.1-8b", cluster, stack="meshwright"), schedules="1f1b,zb-v")
    assert answer(asked).to_json()["candidates_unplayed"] > 0


@pytest.mark.slow
def test_keeping_never_helps():
    free = planned("llama-3.2-1b", "h100-sxm-80gb x 8", top=1)
    kept = planned("llama-3.2-1b", "h100-sxm-80gb x 8", "tp=8", top=1)
    assert kept.considered == free.considered
    assert kept.feasible < free.feasible
    assert kept.proposals[0].report.step_time_s >= free.proposals[0].report.step_time_s * (1 - 2 * TIE)


@pytest.mark.slow
def test_more_of_the_same_devices_are_never_slower_for_a_batch_that_divides():
    times = [
        planned("llama-3.1-8b", f"h100-sxm-80gb x {count}", batch=64, top=1).proposals[0].report.step_time_s
        for count in (8, 16, 32)
    ]
    assert times == sorted(times, reverse=True)


def test_counts_add_up():
    answer = planned("mixtral-8x7b", "h100-sxm-80gb x 24", batch=24)
    data = answer.to_json()
    assert sum(data["rejected"].values()) == answer.considered - answer.feasible
    assert answer.feasible <= answer.evaluated <= answer.legal < answer.considered
    assert list(data["rejected"].values()) == sorted(data["rejected"].values(), reverse=True)


def test_wrong_questions_come_with_all_their_problems(tmp_path):
    cluster = tmp_path / "two.yaml"
    cluster.write_text(TWO_POOLS, encoding="utf-8")
    for bad, fields in (
        (header("gpt-3-175b", "h100-sxm-80gb x 64", seq_len=4096), {"workload.seq_len"}),
        (header("gpt-9", "h9 x 8", stack="none"), {"model", "cluster.device", "stack"}),
        (
            header("llama-3.1-8b", "h100-sxm-80gb x 8", seq_len=0, batch=-1),
            {"workload.seq_len", "workload.global_batch"},
        ),
        (header("llama-3.1-8b", str(cluster)), {"cluster"}),
    ):
        with pytest.raises(InputError) as caught:
            setting_of(bad)
        assert {problem.field for problem in caught.value.problems} == fields
        assert all(problem.suggestion for problem in caught.value.problems)


def test_what_can_be_kept():
    assert parse_keep(("tp=8", " sharding = zero3 ", "virtual_stages=2")) == {
        "tp": 8,
        "sharding": "zero3",
        "virtual_stages": 2,
    }
    with pytest.raises(InputError) as caught:
        parse_keep(("tp=x", "sharding=zero7", "speed=2", "sequence_parallel=1"))
    assert len(caught.value.problems) == 4


def test_an_infeasible_question_says_why():
    with pytest.raises(InfeasibleError) as caught:
        planned("llama-3.1-70b", "h100-sxm-80gb x 4")
    error = caught.value
    assert error.exit_code == 1
    assert error.message == "No plan of llama-3.1-70b fits on h100-sxm-80gb x 4."
    assert "per device, usable are" in error.reasons[0]
    bytes_of_states = 6 * load_model("llama-3.1-70b").parameters  # parameters and gradients at the least
    assert bytes_of_states / 4 > 80e9
    assert "h100-sxm-80gb x" in error.suggestion
