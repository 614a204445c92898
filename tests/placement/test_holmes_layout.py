"""Holmes's shape as an outcome: stages along the slow border, data parallelism inside equal cards (2312.03549)."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.load import load_cluster
from meshwright.placement.node_order.exhaustive import alike_nodes, all_orders
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.verbs.plan.node_placement import with_node_order
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of
from meshwright.verbs.plan.proposal import Proposal
from meshwright.verbs.predict.predict_plan import predicted
from meshwright.verbs.predict.slow_links import placement_task

INFINIBAND = (0, 2, 4, 6)
CLUSTER = """name: two networks
pools: [{device: a100-sxm-80gb, count: 64, node: {like: dgx-a100, nic_gbit_per_s_per_node: 800}}]
links:
  groups:
    - {name: ib, nodes: [0, 2, 4, 6], nic_gbit_per_s_per_node: 800}
    - {name: roce, nodes: [1, 3, 5, 7], nic_gbit_per_s_per_node: 800}
  between_groups_gbit_per_s_per_node: 25
"""


@pytest.fixture
def header(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER, encoding="utf-8")
    data = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": str(path),
        "workload": {"seq_len": 2048, "global_batch": 256},
    }
    return ShortPlan.model_validate(data)


def test_a_search_finds_stages_along_the_border(header):
    found = answer(PlanRequest(header, keep=("recompute=none", "cp=1"), top=2))
    best = found.proposals[0]
    layout = best.plan.layout
    assert layout.pp % 2 == 0
    assert layout.node_order is not None
    halves = {layout.node_order[:4], layout.node_order[4:]}
    assert {tuple(sorted(half)) for half in halves} == {INFINIBAND, (1, 3, 5, 7)}
    assert [one.report.step_time_s for one in found.proposals] == sorted(
        one.report.step_time_s for one in found.proposals
    )
    assert best.placed.exact
    assert best.placed.gained > 0.3
    assert best.to_json()["placement"]["node_order"] == list(layout.node_order)
    assert any("ib | roce" in remark and remark.startswith("pp waits") for remark in best.report.remarks)


def planned(header, node_order=None, **layout):
    keys = {"layout": {**layout, "node_order": node_order}, "sharding": "zero1"}
    return ShortPlan.model_validate(header.to_data() | keys, strict=False)


def proposed(short, setting):
    resolved = resolve_with(short, setting.model, setting.cluster, setting.stack)
    return Proposal(short, predicted(resolved), ())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("layout", [{"pp": 2, "dp_shard": 32}, {"pp": 4, "dp_shard": 8, "tp": 2}])
def test_the_order_is_the_best_by_full_predictions(header, layout):
    setting = setting_of(header)
    short = planned(header, **layout)
    found = with_node_order(proposed(short, setting), setting)
    orders = all_orders(
        alike_nodes(placement_task(short, expand(short, setting.model.architecture), setting).fabric)
    )
    some = np.random.default_rng(0).permutation(len(orders))[:20]
    for order in orders[some]:
        other = proposed(planned(header, tuple(order.tolist()), **layout), setting)
        assert found.report.step_time_s <= other.report.step_time_s * (1 + 1e-9)
    assert found.report.step_time_s == pytest.approx(found.placed.step_s, rel=1e-12)


def test_simulation_and_prediction_of_the_ordered_plan_agree(header):
    setting = setting_of(header)
    found = with_node_order(proposed(planned(header, pp=2, dp_shard=32), setting), setting)
    played = simulated_estimate(expand(found.plan, setting.model.architecture), setting)
    assert sum(played.parts.values()) == pytest.approx(found.report.step_time_s, rel=0.03)


def test_hybrid_lies_between_one_network_and_the_slow_one(header):
    """Pipelined over two networks nearly as quick as over one; over the slow one alone it is another matter."""
    setting = setting_of(header)
    short = planned(header, pp=2, dp_shard=32)
    hybrid = with_node_order(proposed(short, setting), setting).report.step_time_s
    one = replace(setting, cluster=replace(setting.cluster, links=None))
    slow_links = load_cluster(CLUSTER.replace("per_node: 800}\n", "per_node: 25}\n"))
    slow = replace(setting, cluster=slow_links)
    fast_s, slow_s = (proposed(short, where).report.step_time_s for where in (one, slow))
    assert fast_s <= hybrid < 1.2 * fast_s
    assert slow_s > 2 * hybrid


def test_nodes_that_are_alike_get_no_order(header):
    question = PlanRequest(
        header.model_copy(update={"cluster": "a100-sxm-80gb x 64"}), keep=("tp=1", "cp=1"), top=1
    )
    (best,) = answer(question).proposals
    assert best.plan.layout.node_order is None
    assert best.placed is None
    assert best.to_json()["placement"] is None
