"""Others' words in plan files, options and tables."""

import pytest

from meshwright import api
from meshwright.errors import InputError
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.plans.forms.spellings import RECOMPUTES, SHARDINGS, stack_in_our_words
from meshwright.plans.overrides import apply_overrides
from meshwright.stack.load import load_stack
from meshwright.verbs.plan.constraints import parse_forbid, parse_keep
from meshwright.workload.fp8_recipe import OTHER_PRECISIONS

SIZES = {"seq_len": 4096, "global_batch": 64}


def plan(**keys):
    header = {"plan": 1, "model": "llama-3.1-8b", "cluster": "h100-sxm-80gb x 8", "workload": SIZES}
    return ShortPlan.model_validate(header | keys)


@pytest.mark.parametrize(("theirs", "ours"), SHARDINGS.items())
def test_shardings(theirs, ours):
    assert plan(sharding=theirs) == plan(sharding=ours)
    assert parse_keep([f"sharding={theirs}"]) == {"sharding": ours}
    assert apply_overrides(plan(), [f"sharding={theirs}"], 8).sharding == ours


@pytest.mark.parametrize(("theirs", "ours"), RECOMPUTES.items())
def test_recomputation(theirs, ours):
    assert plan(recompute=theirs) == plan(recompute=ours)
    assert parse_forbid([f"recompute={theirs}"]) == {"recompute": (ours,)}


@pytest.mark.parametrize(("theirs", "ours"), OTHER_PRECISIONS.items())
def test_precisions_say_their_recipe(theirs, ours):
    found = WorkloadSpec(**SIZES, precision=theirs.upper())
    assert (found.precision, found.fp8_recipe) == ours
    assert WorkloadSpec(**SIZES, precision=theirs, fp8_recipe=ours[1]) == found


def test_what_is_written_has_our_words():
    text = "\n".join(
        (
            "plan: 1",
            "model: llama-3.1-8b",
            "cluster: h100-sxm-80gb x 8",
            "workload: {seq_len: 4096, global_batch: 64, precision: fp8-cs}",
            "layout: {dp_replicate: 8}",
            "sharding: zero0",
        )
    )
    data = parse_plan(text).to_data()
    assert data["sharding"] == "none"
    assert (data["workload"]["precision"], data["workload"]["fp8_recipe"]) == ("fp8", "current")


def test_a_precision_and_another_recipe_contradict_each_other():
    with pytest.raises(InputError) as error:
        api.plan("llama-3.1-8b", on="h100-sxm-80gb x 8", **SIZES, precision="fp8-cs", fp8_recipe="delayed")
    (problem,) = error.value.problems
    assert problem.field == "workload.fp8_recipe"
    assert problem.rule == "precision fp8-cs means the recipe current"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Megatron-Core 0.19", "megatron-core@0.19"),
        ("torchtitan==0.3", "torchtitan@0.3"),
        ("megatron_bridge v26.02", "megatron-bridge@26.02"),
        ("torchtitan@0.3", "torchtitan@0.3"),
        ("megatron-lm-2022", "megatron-lm-2022"),
        ("my stack", "my stack"),
    ],
)
def test_framework_names_with_releases(theirs, ours):
    assert stack_in_our_words(theirs) == ours
    if ours != "my stack":
        assert load_stack(theirs) == load_stack(ours)
        assert plan(stack=theirs).stack == ours


@pytest.mark.parametrize("keys", [{"sharding": "zero9"}, {"recompute": "some"}])
def test_unknown_words_are_errors_in_a_plan(keys):
    with pytest.raises(ValueError, match=next(iter(keys))):
        plan(**keys)
