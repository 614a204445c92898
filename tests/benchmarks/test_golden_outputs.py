"""Comparing records of answers: what counts as the same."""

import sys

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from golden_outputs import Comparison, causes_of


def compared(old, new, sentences=None):
    found = Comparison(sentences or {})
    found.compare_answers({"plan a": {"exit": 0, "json": old}}, {"plan a": {"exit": 0, "json": new}})
    return found


PROBLEMS = [{"field": "pp", "value": 2, "rule": "x"}, {"field": "tp", "value": 3, "rule": "y"}]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"step_time_s": 1.0}, {"step_time_s": 1.0 + 1e-14}),
        ({"problems": PROBLEMS}, {"problems": PROBLEMS[::-1]}),
        ({"why": "what it costs\nmuch"}, {"why": "its cost\nmuch"}),
        ({"stack.yaml": "a: 1\n"}, {"stack.yaml": "b: 2\na: 1\n"}),
        ({"rejected": {"too large": 3}}, {"rejected": {"too large": 2, "torchtitan has no such form": 1}}),
        (
            {"candidates_legal": 3, "rejected": {"what it costs": 1}},
            {"candidates_legal": 2, "rejected": {"its cost": 1, "torchtitan has no such form": 1}},
        ),
    ],
)
def test_answers_that_are_the_same(old, new):
    assert not compared(old, new, {"what it costs": "its cost"}).differences


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"step_time_s": 1.0}, {"step_time_s": 1.0 + 1e-9}),
        ({"step_time_s": 1.0}, {}),
        ({"problems": PROBLEMS}, {"problems": PROBLEMS[:1]}),
        ({"why": "what it costs"}, {"why": "its price"}),
        ({"value": "what it costs"}, {"value": "its cost"}),
        ({"rejected": {"too large": 3}}, {"rejected": {"too large": 2}}),
        (
            {"candidates_legal": 3, "rejected": {"what it costs": 1}},
            {"candidates_legal": 2, "rejected": {"its cost": 1}},
        ),
    ],
)
def test_answers_that_are_not(old, new):
    assert compared(old, new, {"what it costs": "its cost"}).differences


def test_a_plan_that_is_forbidden_now_is_a_cause():
    plan = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": "h100-sxm-80gb x 8",
        "stack": "deepspeed",
        "workload": {"seq_len": 4096, "global_batch": 64},
        "layout": {"pp": 2, "dp_shard": 4},
        "sharding": "zero1",
    }
    old, new = (
        {"plans": [{"plan": one}], "step_time_s": 1.0} for one in (plan, plan | {"layout": {"pp": 1}})
    )
    found = compared(old, new)
    assert not found.differences
    assert "into stages" in found.allowed[-1]
    legal = {"exit": 0, "json": {"best_plan": plan | {"layout": {"pp": 1, "dp_shard": 8}}}}
    assert causes_of(legal) == []


def test_a_refusal_in_place_of_an_answer_is_a_difference_unless_its_cause_is_known():
    old, new = {"exit": 0, "json": {"files": {}}}, {"exit": 2, "json": {"problems": PROBLEMS}}
    for causes, differs in (({}, True), ({"export a": "the target has no such option"}, False)):
        found = Comparison({}, causes)
        found.compare_answers({"export a": old}, {"export a": new})
        assert bool(found.differences) == differs
