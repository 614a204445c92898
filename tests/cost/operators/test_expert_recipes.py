"""Experts cost host time unless recipes capture their launches; fused and overlapped they cost less of the device's."""

from dataclasses import replace

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.kernel_and_collective_times import hardware_times_for
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.stack.device_recipe import DeviceRecipe
from meshwright.stack.load import load_stack
from meshwright.verbs.predict.predict_plan import predicted

PLAIN = replace(load_stack("megatron-bridge"), device_recipes=())


def report(recipe=None, model="qwen3-30b-a3b", layout=None, micro_batch=1, **changes):
    stack = replace(PLAIN, **changes)
    if recipe is not None:
        stack = replace(stack, device_recipes=(DeviceRecipe(device="gb200", source="a test", **recipe),))
    keys = {
        "plan": 1,
        "model": model,
        "cluster": "gb200 x 8",
        "stack": stack.id,
        "layout": layout or {"ep": 8, "dp_shard": 8},
    }
    keys |= {"workload": {"seq_len": 4096, "global_batch": 64, "precision": "mxfp8"}, "sharding": "zero1"}
    keys |= {"pipeline": {"micro_batch": micro_batch}}
    graph = load_model(model)
    plan = expand(ShortPlan.model_validate(keys), graph.architecture)
    return predicted(resolve_with(plan, graph, load_cluster("gb200 x 8"), stack)).breakdown_s


def test_experts_keep_the_host_busy():
    few, many = report(micro_batch=1), report(micro_batch=8)
    assert few["host"] > many["host"] >= 0
    without = report(expert_host_s=0.0)
    assert few["host"] > without["host"]
    dense = {"model": "qwen3-32b", "layout": {"tp": 8}}
    assert report(**dense)["host"] == report(**dense, expert_host_s=0.0)["host"]


def test_what_is_captured_is_launched_at_once():
    eager = report()["host"]
    assert 0 < report({"captures": "attention"})["host"] < eager
    assert report({"captures": "step"})["host"] == 0


def test_fused_and_overlapped_experts_cost_less():
    plain = report(expert_host_s=0.0)
    fused = report({"fuses_experts": True}, expert_host_s=0.0)
    assert fused["compute"] < plain["compute"]
    assert fused["ep"] == plain["ep"]
    overlapped = report({"overlaps_exchange": True}, expert_host_s=0.0)
    assert overlapped["ep"] < plain["ep"]
    assert overlapped["compute"] == plain["compute"]


@pytest.mark.parametrize("rows", [1, 4096.0])
def test_one_expert_is_a_product_like_any_other(rows):
    forms = hardware_times_for(load_cluster("h100-sxm-80gb x 8").pool, "bf16")
    assert forms.grouped_gemm(rows, 1, 4096, 14336) == forms.gemm(rows, 4096, 14336)
    assert forms.grouped_gemm(2 * rows, 2, 4096, 14336) > forms.gemm(2 * rows, 4096, 14336)
