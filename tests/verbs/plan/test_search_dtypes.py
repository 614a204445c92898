"""Searches that may change the element types of states."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from planning_questions import header, planned

from meshwright.errors import InfeasibleError, InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.resolve import resolve
from meshwright.present.plan_answers.layout_text import dtype_lines
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of
from meshwright.verbs.plan.search_dtypes import (
    NOT_PREDICTED,
    SETS,
    OfTypes,
    answer_allowing_types,
    in_order,
    type_sets,
)

LARGE = {"model": "llama-3.1-8b", "cluster": "h100-sxm-80gb x 2", "stack": "deepspeed"}
SMALL = {"model": "llama-3.2-1b", "cluster": "h100-sxm-80gb x 2", "batch": 8}


def asked(**nouns):
    return PlanRequest(header(**nouns), allow=("dtypes",))


def test_without_leave_the_answer_is_the_usual_one():
    question = header(**SMALL)
    usual, same = planned(**SMALL), answer_allowing_types(PlanRequest(question))
    assert same.proposals == usual.proposals
    assert "dtypes" in {row.key for row in same.space.left_out}


@pytest.mark.parametrize("searched_alone", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_every_set_of_types_has_its_best_plan_which_is_that_of_a_search_with_them(searched_alone):
    question = asked(**SMALL)
    sets = type_sets(setting_of(question.header))
    found = answer_allowing_types(replace(question, top=2 * len(sets)))
    kinds = [tuple(plan.plan.dtypes.written.items()) if plan.plan.dtypes else () for plan in found.proposals]
    assert {*kinds} == {tuple(changed.items()) for changed in sets}
    assert len({*kinds[: len(sets)]}) == len(sets), "the best of each comes first"
    best = found.proposals[: len(sets)]
    for plan in best[:searched_alone]:
        alone = answer(PlanRequest(question.header.model_copy(update={"dtypes": plan.plan.dtypes})))
        assert alone.proposals[0].plan == plan.plan
        assert alone.proposals[0].report.step_time_s == plan.report.step_time_s
    for plan in best:
        written = resolve(parse_plan(plan.to_yaml())).long.written_types
        assert written == (plan.plan.dtypes.written if plan.plan.dtypes else {})
        assert any(NOT_PREDICTED in remark for remark in plan.report.remarks) == bool(plan.plan.dtypes)
    assert found.considered > len(sets), "all of their candidates together"
    (row,) = (row for row in found.space.searched if row.key == "dtypes")
    assert len(row.values) == len(sets)
    lines = dtype_lines([plan.to_json() for plan in found.proposals])
    assert len(lines) == sum(bool(kind) for kind in kinds)


@pytest.mark.slow
def test_what_fits_only_with_states_on_the_host_may_fit_with_narrower_states_on_the_device():
    nouns = {"model": "llama-2-7b", "cluster": "h100-sxm-80gb x 1", "stack": "generic"}
    usual = answer(PlanRequest(header(**nouns))).proposals[0]
    assert usual.plan.offload.shares.some
    found = answer_allowing_types(asked(**nouns))
    narrow = [one for one in found.proposals if one.plan.dtypes and one.plan.offload is None]
    assert min(one.report.step_time_s for one in narrow) < usual.report.step_time_s
    assert found.fastest.plan.dtypes is not None


def test_what_fits_with_no_types_is_refused():
    with pytest.raises(InfeasibleError):
        answer_allowing_types(asked(model="llama-3.1-8b", cluster="a100-sxm-40gb x 1", stack="maxtext"))


@pytest.mark.parametrize(
    ("stack", "count"), [("megatron-core", 5), ("torchtitan", 2), ("deepspeed", 2), ("generic", 4)]
)
def test_a_stack_has_the_sets_that_it_runs(stack, count):
    assert len(type_sets(setting_of(header("llama-3.1-8b", "h100-sxm-80gb x 8", stack=stack)))) == count
    assert len(SETS) == 6


def test_of_plans_that_a_prediction_cannot_tell_apart_the_fewest_changes_come_first():
    def one(step_s, changes):
        plan = SimpleNamespace(report=SimpleNamespace(step_time_s=step_s))
        return OfTypes(dict.fromkeys(map(str, range(changes))), SimpleNamespace(proposals=(plan,)))

    usual, near, far = one(1.0, 0), one(0.95, 2), one(0.5, 4)
    assert in_order([usual, near, far], 1.1) == [far, usual, near]
    assert in_order([near, usual], 1.01) == [near, usual]


def test_other_keys_are_refused_by_name():
    with pytest.raises(InputError, match="did you mean dtypes"):
        answer(PlanRequest(header(**LARGE), allow=("dtype",)))
