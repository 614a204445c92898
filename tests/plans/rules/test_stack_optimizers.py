"""Optimizers and their options: unknown ones, values out of range, moments, and what a stack does not have."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, STACK, cluster, graph, long_plan, short_plan

from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.short import OptimizerSpec
from meshwright.plans.overrides import apply_overrides
from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(
    STACK, optimizers=("adamw", "sgd", "lion", "muon"), moment_types=("fp32", "bf16", "fp16", "fp8")
)


def problems(optimizer, stack=ABLE, **plan):
    made = long_plan(workload={"optimizer": optimizer}, **plan)
    return [p for p in check_plan(made, graph(DENSE), cluster(64), stack) if p.severity == "error"]


@pytest.mark.parametrize(
    "optimizer",
    [
        "lion",
        "muon",
        {"name": "adamw", "betas": (0.9, 0.98), "epsilon": 1e-6, "weight_decay": 0},
        {"name": "sgd", "momentum": 0.9, "nesterov": True},
        {
            "name": "muon",
            "steps": 5,
            "momentum": 0.95,
            "nesterov": True,
            "scale": "shape",
            "tensor": "duplicated",
        },
        {"name": "muon", "others": "lion"},
    ],
    ids=str,
)
def test_options_that_an_optimizer_has_are_legal(optimizer):
    assert problems(optimizer) == []


@pytest.mark.parametrize(
    ("optimizer", "field", "rule", "suggestion"),
    [
        ("muno", "workload.optimizer", "unknown", "muon"),
        ({"name": "adamw", "steps": 5}, "workload.optimizer.steps", "is no option of adamw", "name: muon"),
        ({"name": "muon", "betas": (0.9, 0.9)}, "workload.optimizer.betas", "is no option of muon", "adamw"),
        ({"name": "muon", "steps": 0}, "workload.optimizer.steps", "from 1 to 100", "e.g. 5"),
        ({"name": "muon", "momentum": 1.0}, "workload.optimizer.momentum", "below 1", "0.95"),
        ({"name": "muon", "scale": "rms"}, "workload.optimizer.scale", "one of shape, spectral", "shape"),
        ({"name": "muon", "tensor": "whole"}, "workload.optimizer.tensor", "one of blockwise", "blockwise"),
        ({"name": "muon", "others": "muon"}, "workload.optimizer.others", "one of adamw", "adamw"),
        ({"name": "adamw", "betas": (0.9,)}, "workload.optimizer.betas", "two numbers", "[0.9, 0.95]"),
        ({"name": "sgd", "nesterov": True}, "workload.optimizer.nesterov", "a momentum above 0", "0.9"),
    ],
    ids=str,
)
def test_wrong_optimizers_are_named_with_their_rule(optimizer, field, rule, suggestion):
    (problem,) = problems(optimizer)
    assert problem.field == field
    assert rule in problem.rule
    assert suggestion in problem.suggestion


def test_all_wrong_options_come_at_once():
    found = problems({"name": "muon", "steps": 0, "momentum": 2.0, "epsilon": 1e-8})
    assert [p.field.rpartition(".")[2] for p in found] == ["epsilon", "momentum", "steps"]


@pytest.mark.parametrize(
    ("optimizer", "dtypes", "field", "rule"),
    [
        ("lion", {"second_moment": "bf16"}, "dtypes.second_moment", "is no state of lion"),
        ("sgd", {"first_moment": "bf16"}, "dtypes.first_moment", "is no state of sgd"),
        ("muon", {"first_moment": "fp8"}, "dtypes.first_moment", "fp32 or bf16"),
    ],
)
def test_types_of_moments_are_those_that_exist(optimizer, dtypes, field, rule):
    (problem,) = problems(optimizer, dtypes=dtypes)
    assert problem.field == field
    assert rule in problem.rule


@pytest.mark.parametrize(
    ("optimizer", "dtypes"),
    [
        ("lion", {"first_moment": "bf16"}),
        ({"name": "sgd", "momentum": 0.9}, {"first_moment": "fp8"}),
        ("muon", {"first_moment": "bf16", "second_moment": "fp8"}),
    ],
    ids=str,
)
def test_moments_that_exist_may_be_narrow(optimizer, dtypes):
    assert problems(optimizer, dtypes=dtypes) == []


def test_a_stack_without_an_optimizer_refuses_it_by_name():
    (problem,) = problems("muon", replace(STACK, optimizers=("adamw", "lion")))
    assert (problem.field, problem.rule) == ("workload.optimizer", "test-stack@1.0 has adamw, lion")


def test_muon_runs_under_shardings_that_the_stack_has():
    some = replace(ABLE, muon_shardings=("none", "zero1"))
    found = problems("muon", some, sharding="zero2")
    assert [p.field for p in found] == ["sharding"]
    assert problems("adamw", some, sharding="zero2") == []


@pytest.mark.parametrize(
    "optimizer", ["lion", {"name": "muon", "steps": 6}, {"name": "adamw", "betas": (0.9, 0.99)}], ids=str
)
def test_options_survive_both_forms(optimizer):
    plan = short_plan(workload={"optimizer": optimizer})
    assert shorten(expand(plan, DENSE)).workload == plan.workload
    assert parse_plan(dump_plan(plan)) == plan


def test_options_are_set_as_those_of_a_schedule():
    plan = short_plan()
    assert apply_overrides(plan, ["optimizer=muon"], None).workload.optimizer == "muon"
    found = apply_overrides(plan, ["optimizer=muon", "optimizer.steps=6"], None).workload.optimizer
    assert found == OptimizerSpec(name="muon", steps=6)
    again = apply_overrides(plan.model_copy(), ["optimizer.epsilon=0.001"], None).workload.optimizer
    assert again == OptimizerSpec(name="adamw", epsilon=0.001)
