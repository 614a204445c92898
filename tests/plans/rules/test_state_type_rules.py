"""Rules on element types of states: of the precision, of the optimizer, and of the stack."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, STACK, cluster, graph, long_plan, short_plan

from meshwright.errors import InputError
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.suggested_settings import suggested_settings, suggestion_text
from meshwright.stack.state_types import with_types

HALF, EVERY = ("fp32", "16-bit"), ("fp32", "bf16", "fp16", "fp8")
ABLE = replace(
    STACK,
    gradient_types=HALF,
    reduce_types=HALF,
    gather_types=("fp8",),
    master_types=("fp16", "none"),
    moment_types=EVERY,
)
JOINT = replace(ABLE, joint_types=(("gradient", "reduce"),))
NARROW = replace(ABLE, narrow_shardings=("zero2",))


def problems(dtypes, stack=ABLE, **workload):
    plan = long_plan(dtypes=dtypes, workload=workload)
    return [p for p in check_plan(plan, graph(DENSE), cluster(64), stack) if p.severity == "error"]


def test_types_that_the_stack_has_are_legal():
    assert problems({"gradient": "bf16", "reduce": "fp32", "master": "none", "second_moment": "fp8"}) == []
    assert problems({}) == []
    assert problems({"gradient": "fp32", "master": "fp32", "first_moment": "fp32"}, STACK) == []


@pytest.mark.parametrize(
    ("dtypes", "about", "field", "rule", "suggestion"),
    [
        (
            {"gradient": "fp16"},
            {},
            "dtypes.gradient",
            "16-bit type of precision bf16 is bf16",
            "gradient: bf16",
        ),
        ({"gather": "fp8"}, {}, "dtypes.gather", "the precision is bf16", "dtypes.gather: bf16"),
        (
            {"first_moment": "bf16"},
            {"optimizer": "sgd"},
            "dtypes.first_moment",
            "is no state of sgd",
            "adamw",
        ),
        (
            {"master": "none"},
            {"stack": STACK},
            "dtypes.master",
            "test-stack@1.0 has fp32 here",
            "master: fp32",
        ),
        (
            {"second_moment": "fp8"},
            {"stack": STACK},
            "dtypes.second_moment",
            "has fp32",
            "second_moment: fp32",
        ),
        (
            {"gradient": "bf16", "reduce": "fp32"},
            {"stack": JOINT},
            "dtypes.gradient",
            "changes gradient, reduce together, and reduce stays as usual",
            "take reduce out",
        ),
        (
            {"first_moment": "bf16"},
            {"stack": NARROW},
            "dtypes.first_moment",
            "keeps narrow optimizer states with sharding zero2 only",
            "sharding: zero2",
        ),
    ],
)
def test_wrong_types_are_named_with_their_rule(dtypes, about, field, rule, suggestion):
    found = problems(dtypes, **about)
    assert any(p.field == field and rule in p.rule and suggestion in p.suggestion for p in found), found


def test_a_type_of_another_precision_is_named_once():
    assert [p.field for p in problems({"gradient": "fp16", "reduce": "bf16"}, JOINT)] == ["dtypes.gradient"]
    found = problems({"first_moment": "bf16", "second_moment": "bf16"}, optimizer="sgd")
    assert [p.field for p in found] == ["dtypes.first_moment", "dtypes.second_moment"]


def test_a_stack_with_the_types_of_a_plan_is_judged_as_the_stack_itself():
    plan = long_plan(dtypes={"first_moment": "bf16"}, sharding="none")
    changed = with_types(NARROW, "bf16", {"first_moment": "bf16"})
    for stack in (NARROW, changed):
        found = [p.field for p in check_plan(plan, graph(DENSE), cluster(64), stack) if p.severity == "error"]
        assert found == ["dtypes.first_moment"]


def test_suggestions_change_the_key_that_they_mean():
    (problem,) = problems({"gather": "fp8"})
    assert suggested_settings(problem) == (("dtypes.gather=bf16",),)
    assert suggestion_text(("dtypes.gather=bf16", "gradient=bf16")) == "dtypes.gather: bf16, gradient: bf16"


def test_all_wrong_types_come_at_once():
    dtypes = {"gradient": "fp16", "gather": "fp8", "master": "none", "first_moment": "bf16"}
    fields = {problem.field for problem in problems(dtypes, STACK)}
    assert fields == {f"dtypes.{key}" for key in dtypes}


def test_both_forms_have_the_key_and_unknown_types_are_refused():
    plan = short_plan(dtypes={"gradient": "bf16", "second_moment": "fp8"})
    long = expand(plan, DENSE)
    assert shorten(long).dtypes == long.dtypes == plan.dtypes
    assert parse_plan(dump_plan(plan)) == plan
    assert parse_plan(dump_plan(long)) == long
    text = dump_plan(plan).replace("second_moment: fp8", "second_moment: int8").replace("bf16", "int4", 2)
    with pytest.raises(InputError) as error:
        parse_plan(text)
    assert {problem.field for problem in error.value.problems} >= {"dtypes.second_moment"}


def test_plans_without_the_key_are_written_without_it():
    assert "dtypes" not in dump_plan(short_plan())
    assert isinstance(short_plan(), ShortPlan)
