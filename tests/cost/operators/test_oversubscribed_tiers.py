"""Oversubscribed tiers: what crosses them gets slower, and nothing else."""

from dataclasses import replace

import pytest

from meshwright.cluster.cluster import Tier
from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.operators.pass_prices import Mesh
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

POD = Tier(name="pod", devices=32, oversubscription=8)
SIZES = {"tp": 8, "dp": 16, "pp": 2}
STRIDES = {"tp": 1, "dp": 8, "pp": 128}


@pytest.mark.parametrize(
    ("axes", "kind", "factor"),
    [
        (("tp",), "all-reduce", 1),  # inside a node
        (
            ("dp",),
            "all-reduce",
            2,
        ),  # 4 of 16 members in a pod: 8 rings cross where 8/8 have room, a quarter each
        (("dp",), "all-to-all", 8 * 12 / 15),
        (("pp",), "p2p", 8),  # all 32 devices of a pod send at once
        (("tp", "dp"), "reduce-scatter", 2),  # one ring, of which 8 cards of each node send a part over 32/8
    ],
)
def test_how_much_longer_the_network_takes(axes, kind, factor):
    assert Mesh(SIZES, STRIDES, 8, (POD,)).congestion(axes, kind) == pytest.approx(factor)
    assert Mesh(SIZES, STRIDES, 8).congestion(axes, kind) == 1


def test_a_tier_that_holds_the_whole_cluster_or_is_not_oversubscribed_changes_nothing():
    for tier in (replace(POD, devices=256), replace(POD, oversubscription=1)):
        mesh = Mesh(SIZES, STRIDES, 8, (tier,))
        assert all(mesh.congestion((axis,), "all-reduce") == 1 for axis in SIZES)


def short(**layout):
    return ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "llama-3.1-8b",
            "cluster": "h100-sxm-80gb x 64",
            "workload": {"seq_len": 4096, "global_batch": 128},
            "layout": layout,
            "sharding": "zero3" if layout.get("dp_shard") == 64 else "none",
        }
    )


def setting(*tiers):
    cluster = replace(load_cluster("h100-sxm-80gb x 64"), tiers=tiers)
    workload = Workload(seq_len=4096, global_batch=128)
    return Setting(load_model("llama-3.1-8b"), cluster, workload, load_stack("megatron-core"))


@pytest.mark.parametrize(
    "layout", [{"dp_shard": 64}, {"dp_replicate": 16, "tp": 4}, {"pp": 8, "dp_replicate": 8}]
)
def test_both_predictions_see_the_tier_alike(layout):
    plan = short(**layout)
    slow, fast = setting(replace(POD, devices=16, oversubscription=64)), setting()
    before, after = (evaluate(from_shorts([plan]), s).step_s[0] for s in (fast, slow))
    assert after > 1.01 * before
    played = simulated_estimate(expand(plan, slow.model.architecture), slow)
    assert sum(played.parts.values()) == pytest.approx(after, rel=0.03)
