"""Closed forms against the simulated Program for adapters of a plan: bytes are equal, times differ by less than 3 %."""

from dataclasses import replace

import pytest
from lattice_plans import MODELS, family
from plan_comparison import hold_together

from meshwright.plans.setting import Setting
from meshwright.workload.adapter import Adapter

OWN_ADAPTERS = Adapter(form="hd-pissa", rank=4, targets=("q", "k", "v", "o"))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stack", ["generic", "torchtitan"])
@pytest.mark.parametrize(
    "adapter",
    [Adapter(targets=("q", "v", "down"), rank=8), Adapter(base="int8"), Adapter(base="nf4"), OWN_ADAPTERS],
    ids=str,
)
def test_closed_forms_equal_the_simulated_program_with_adapters_of_a_plan(adapter, stack, model, count):
    chosen = family(model, "h100-sxm-80gb x 24", stack, count, seed=8)
    setting = with_adapter(chosen.setting, adapter)
    hold_together(replace(chosen, setting=setting))


def with_adapter(setting, adapter):
    workload = replace(setting.workload, task="lora", adapter=adapter)
    return Setting.of(setting.model, setting.cluster, workload, setting.stack)
