"""Recipes of fp8 in workloads, stacks and prices."""

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import recipe_costs
from meshwright.cost.operators.price_plans import setting_hardware_times
from meshwright.errors import InputError
from meshwright.model.load import load_model
from meshwright.plans.rules.stack_limits import broken_by_every_plan
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack, stack_names
from meshwright.workload.fp8_recipe import FP8_RECIPES
from meshwright.workload.workload import Workload


def setting(recipe=None, stack="megatron-core", precision="fp8"):
    workload = Workload(seq_len=4096, global_batch=64, precision=precision, fp8_recipe=recipe)
    return Setting(load_model("llama-3.1-8b"), load_cluster("h100-sxm-80gb x 8"), workload, load_stack(stack))


def gemm_s(setting):
    return setting_hardware_times(setting).gemm(8192, 4096, 4096)


def test_a_workload_without_a_recipe_trains_with_the_stacks_usual_one():
    assert gemm_s(setting()) == gemm_s(setting("current"))
    assert gemm_s(setting(stack="llm-foundry")) == gemm_s(setting("delayed", "llm-foundry"))


def test_recipes_differ_by_their_pass_and_by_the_rate_of_their_products():
    current, delayed, blockwise = (gemm_s(setting(name)) for name in ("current", "delayed", "blockwise"))
    assert delayed < current
    assert blockwise != current
    large = [
        setting_hardware_times(setting(name)).gemm(2**15, 2**15, 2**15) for name in ("delayed", "blockwise")
    ]
    assert large[0] < large[1]


def test_16_bit_has_no_recipe():
    assert load_stack().recipe_of(setting(precision="bf16").workload) is None


def test_every_recipe_has_a_cost_and_every_stack_a_usual_recipe():
    assert set(recipe_costs()) == set(FP8_RECIPES)
    for name in stack_names():
        assert set(load_stack(name).fp8_recipes) <= set(FP8_RECIPES)


@pytest.mark.parametrize(
    ("precision", "recipe", "words"),
    [
        ("fp8", "dynamic", "one of current, delayed"),
        ("bf16", "current", "the precision is bf16"),
        ("mxfp8", "blockwise", "the precision is mxfp8"),
    ],
)
def test_wrong_recipes(precision, recipe, words):
    with pytest.raises(InputError, match=words) as error:
        Workload(seq_len=1, global_batch=1, precision=precision, fp8_recipe=recipe)
    assert [problem.field for problem in error.value.problems] == ["workload.fp8_recipe"]


def test_a_stack_refuses_a_recipe_that_it_does_not_have():
    (problem,) = broken_by_every_plan(setting("rowwise"))
    assert problem.field == "workload.fp8_recipe"
    assert problem.rule.endswith("trains with the recipes current, delayed, blockwise")
    assert problem.suggestion == "fp8_recipe: current"
    assert not broken_by_every_plan(setting("delayed"))
