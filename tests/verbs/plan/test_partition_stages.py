"""Plans with stages that are cut anew: better than with equal ones, and what the prediction of their file says."""

import json

import pytest
from planning_questions import header, planned

from meshwright import api
from meshwright.errors import InfeasibleError, InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.units import format_seconds
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of

LARGE_HEAD = ("llama-3.1-8b", "a100-sxm-40gb x 16")


def asked(stages, *keep, question=LARGE_HEAD, **options):
    return answer(PlanRequest(header(*question, **options), keep, 5, stages))


@pytest.mark.slow
def test_a_large_head_gets_fewer_layers_and_the_step_is_shorter():
    keep = ("pp=8", "tp=1", "cp=1")
    even, cut = planned(*LARGE_HEAD, *keep), asked("time", *keep)
    assert cut.proposals[0].report.step_time_s < 0.9 * even.proposals[0].report.step_time_s
    stages = cut.proposals[0].long.pipeline.stages
    assert stages[-1][-1] == "head"
    assert len(stages) % 8 == 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("stack", "keep", "stages"),
    [
        ("torchtitan", ("virtual_stages=1", "cp=1"), "memory"),
        ("torchtitan", ("virtual_stages=1", "cp=1"), "time"),
        ("megatron-core", ("virtual_stages=2",), "time"),
        ("megatron-core", ("virtual_stages=2",), "memory"),
    ],
)
def test_proposals_are_legal_fit_and_are_predicted_as_their_files_are(stages, stack, keep, tmp_path):
    found = asked(stages, "pp=4", *keep, stack=stack)
    setting = setting_of(header(*LARGE_HEAD, stack=stack))
    written = [proposal for proposal in found.proposals if proposal.long is not None]
    assert written
    for proposal in written:
        problems = check_plan(proposal.long, setting.model, setting.cluster, setting.stack)
        assert not [problem for problem in problems if problem.severity == "error"]
        assert proposal.report.fits
        assert parse_plan(proposal.to_yaml()) == proposal.long
        file = tmp_path / "plan.yaml"
        file.write_text(proposal.to_yaml(), encoding="utf-8")
        assert api.predict(file).step_time_s == proposal.report.step_time_s
        data = proposal.to_json()
        assert parse_plan(json.dumps(data["long"])) == proposal.long
        assert data["reasons"][-1]["field"] == "stages"


def test_a_plan_with_new_stages_is_exported(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(asked("time", "pp=8", "virtual_stages=1").proposals[0].to_yaml(), encoding="utf-8")
    files = api.export(file, to="megatron")["files"]
    assert any("--pipeline-model-parallel-layout" in text for text in files.values())


ONE_PLAN = ("pp=4", "tp=1", "cp=1", "schedule=1f1b", "micro_batch=1", "recompute=none")


def test_by_memory_the_fullest_device_of_a_plan_holds_less():
    lean, even = asked("memory", *ONE_PLAN), planned(*LARGE_HEAD, *ONE_PLAN)
    totals = [found.proposals[0].report.memory_bytes["total"] for found in (lean, even)]
    assert totals[0] < totals[1]


def test_new_stages_make_plans_fit_that_did_not():
    question = ("llama-3.1-8b", "a100-sxm-40gb x 8")
    with pytest.raises(InfeasibleError):
        planned(*question, *ONE_PLAN, "offload.optimizer=none", seq_len=4096)
    found = asked("time", *ONE_PLAN, question=question, seq_len=4096)
    assert found.feasible > 0
    assert found.proposals[0].report.fits
    assert "does not fit with balanced stages" in found.proposals[0].reasons[-1].text


def test_balanced_plans_have_no_long_form():
    assert all(proposal.long is None for proposal in asked("balanced", *ONE_PLAN).proposals)


FULL = ("llama-3.1-70b", "h100-sxm-80gb x 32")
"""Without recomputation the first devices of a long pipeline are too full, with it the last ones have room."""
LONG_PIPELINE = ("pp=8", "tp=2", "cp=1", "micro_batch=1", "schedule=1f1b", "sharding=zero1")


def by_stage(*keep, stack="meshwright", stages="time"):
    return asked(stages, *LONG_PIPELINE, *keep, question=FULL, stack=stack, seq_len=8192, batch=128)


@pytest.fixture(scope="module")
def mixed():
    return by_stage().proposals[0]


def test_early_stages_recompute_more_where_that_is_quicker_than_all_alike(mixed):
    (alike,) = by_stage("recompute=full").proposals
    assert mixed.report.fits
    assert mixed.report.step_time_s < 0.95 * alike.report.step_time_s
    for lighter in ("none", "selective"):
        with pytest.raises(InfeasibleError):
            by_stage(f"recompute={lighter}", "offload.optimizer=none", "offload.parameters=none")
    words = mixed.reasons[-2].value.split(" | ")
    assert len(words) == 8
    assert words == sorted(words)  # full before none and selective
    assert len(set(words)) > 1
    assert "does not fit" in mixed.reasons[-2].text
    assert f"full on all: {format_seconds(alike.report.step_time_s)}" in mixed.reasons[-2].text


def test_a_plan_with_recomputation_by_stage_is_predicted_as_its_file_is(mixed, tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(mixed.to_yaml(), encoding="utf-8")
    assert parse_plan(mixed.to_yaml()) == mixed.long
    found = api.predict(file)
    assert found.step_time_s == mixed.report.step_time_s
    assert found.memory_bytes == mixed.report.memory_bytes


def test_stages_recompute_alike_where_the_stack_can_not_do_else():
    words = {rule.recompute for p in by_stage(stack="megatron-core").proposals for rule in rules_of(p)}
    assert words == {"full"}


def rules_of(proposal):
    layers = proposal.long.layers if proposal.long else {"all": proposal.plan}
    return [rule for key, rule in layers.items() if key not in ("embed", "head")]


@pytest.mark.parametrize("stages", ["even", "", "times"])
def test_other_words_are_refused(stages):
    with pytest.raises(InputError) as refused:
        asked(stages)
    assert refused.value.problems[0].field == "stages"


@pytest.mark.slow
def test_without_a_pipeline_there_is_nothing_to_cut():
    found = asked("time", "pp=1")
    assert [p.plan for p in found.proposals] == [p.plan for p in planned(*LARGE_HEAD, "pp=1").proposals]


def test_a_cut_by_memory_holds_no_more_than_one_by_time():
    keep = ("pp=4", "tp=1", "cp=1", "dp_shard=8", "sharding=zero1", "micro_batch=1", "recompute=none")
    question = ("llama-3.1-8b", "h100-sxm-80gb x 32")
    held = {
        aim: asked(aim, *keep, "schedule=zero-bubble", question=question, stack="meshwright", batch=64)
        .proposals[0]
        .report.memory_bytes["total"]
        for aim in ("balanced", "time", "memory")
    }
    assert held["memory"] <= held["time"] < held["balanced"]


@pytest.mark.slow
def test_beside_other_schedules_one_that_holds_layers_twice_keeps_its_stages():
    odd = header("llama-3.1-8b", "h100-sxm-80gb x 8", stack="generic", batch=12)
    found = answer(PlanRequest(odd, ("pp=2",), 20, "time", "dualpipe,1f1b"))
    staged = {(proposal.plan.pipeline.choice.name, proposal.long is not None) for proposal in found.proposals}
    assert ("1f1b", True) in staged
    assert ("dualpipe", False) in staged
    assert ("dualpipe", True) not in staged


def test_stages_of_a_schedule_that_holds_layers_twice_are_not_cut_anew():
    with pytest.raises(InputError, match="every layer on 2 ranks"):
        asked("time", "schedule=dualpipe", "pp=2", stack="generic")
