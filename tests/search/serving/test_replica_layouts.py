"""Layouts of a replica: the laws of plans, every layout of small clusters in that of larger ones, and counts."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.model.load import load_model
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.resolve_serving import serving_problems
from meshwright.plans.serving.rules.serving_rule_input import ServingRuleInput
from meshwright.plans.serving.serving_plan import Pool, ServingPlan
from meshwright.search.serving.replica_layouts import LayoutRule, degrees_to, replica_layouts
from meshwright.workload.serving.request_lengths import RequestLengths
from meshwright.workload.serving.serving_workload import ServingWorkload

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3")


def legal(arch, devices, layout):
    pool = Pool("all", "serve", 1, {"prefill": layout, "decode": layout})
    plan = ServingPlan("", "", "vllm", ServingWorkload(RequestLengths.fixed(100, 10), 1), {"all": pool})
    return not any(p.severity == "error" for p in serving_problems(ServingRuleInput(plan, arch, devices)))


@pytest.mark.parametrize("devices", [1, 6, 8, 16])
@pytest.mark.parametrize("model", MODELS)
def test_layouts_are_those_that_break_no_law(model, devices):
    arch, sizes = load_model(model).architecture, degrees_to(devices)
    expected = set()
    for adp, tp, pp, ep in product(sizes, repeat=4):
        if adp * tp * pp > devices or adp * tp % ep or (arch.moe is None and adp * ep > 1):
            continue
        layout = ReplicaLayout(adp, tp, pp, 1, ep, adp * tp // ep if arch.moe else 1)
        if legal(arch, devices, layout):
            expected.add((adp, tp, pp, ep, layout.etp))
    found = replica_layouts(arch, (devices,))
    assert set(map(tuple, found.table.tolist())) == expected
    assert found.considered == len(found) + sum(found.refused.values())
    assert (found.devices <= devices).all()


@given(devices=st.integers(1, 48), times=st.integers(1, 6), model=st.sampled_from(MODELS))
def test_layouts_of_a_cluster_are_layouts_of_its_multiples(devices, times, model):
    arch = load_model(model).architecture
    one, more = (replica_layouts(arch, (count,)).table.tolist() for count in (devices, times * devices))
    assert set(map(tuple, one)) <= set(map(tuple, more))


def test_further_rules_refuse_by_their_reason():
    arch = load_model("llama-3.1-8b").architecture
    rule = LayoutRule("odd", lambda rows, arch: rows["tp"] != 2)
    found = replica_layouts(arch, (8,), (rule,))
    assert 2 not in found.table[:, 1]
    assert found.refused["odd"] == sum(row[1] == 2 for row in replica_layouts(arch, (8,)).table)
