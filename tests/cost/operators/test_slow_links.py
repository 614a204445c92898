"""Links that are not alike: the slowest one of a group decides its collectives, in closed forms and in simulation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.cluster import Links, Tier
from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.pass_prices import Mesh
from meshwright.cost.operators.price_plans import links_under, setting_hardware_times
from meshwright.model.load import load_model
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.plans.setting import Setting
from meshwright.simulate.plan_estimate import simulated_estimate
from meshwright.stack.load import load_stack
from meshwright.verbs.predict.predict_plan import estimated
from meshwright.workload.workload import Workload

CLUSTER = load_cluster("h100-sxm-80gb x 64")
DENSE, SPARSE = load_model("llama-3.1-8b"), load_model("mixtral-8x7b")
STACK = load_stack("megatron-core")
LAYOUTS = [
    {"layout": {"dp_shard": 64}, "sharding": "zero3"},
    {"layout": {"pp": 4, "dp_shard": 8, "tp": 2}, "sharding": "zero1"},
    {"layout": {"pp": 8, "dp_replicate": 2, "tp": 4}},
    {"layout": {"pp": 2, "dp_shard": 2, "cp": 8, "tp": 2}, "sharding": "zero1"},
    {
        "layout": {"pp": 4, "dp_shard": 4, "tp": 4},
        "sharding": "zero1",
        "pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2},
    },
]
EXPERTS = {"layout": {"pp": 2, "dp_shard": 16, "tp": 2, "ep": 8}, "sharding": "zero1"}


def random_links(seed, nodes=8):
    rates = np.random.default_rng(seed).uniform(0.05, 1.0, (nodes, nodes))
    rates = np.minimum(rates, rates.T)
    np.fill_diagonal(rates, 1.0)
    return Links(shares=tuple(map(tuple, rates.tolist())))


def resolved(keys, links=None, order=None, tiers=(), model=DENSE):
    workload = {"seq_len": 4096, "global_batch": 128}
    data = {"plan": 1, "model": "m", "cluster": "c", "workload": workload, "stack": STACK.id, **keys}
    data["layout"] = {**data["layout"], "node_order": order}
    cluster = replace(CLUSTER, links=links, tiers=tiers)
    return resolve_with(ShortPlan.model_validate(data), model, cluster, STACK)


def seconds(*args, **about):
    return sum(estimated(resolved(*args, **about)).parts.values())


@pytest.mark.parametrize("keys", LAYOUTS)
def test_links_that_are_all_alike_change_no_number(keys):
    plain = estimated(resolved(keys))
    alike = Links(shares=((1.0,) * 8,) * 8)
    for links, order in ((alike, None), (alike, (3, 1, 0, 2, 7, 6, 5, 4)), (None, tuple(range(8)))):
        assert estimated(resolved(keys, links, order)) == plain


@pytest.mark.parametrize(("keys", "model"), [*((keys, DENSE) for keys in LAYOUTS), (EXPERTS, SPARSE)])
@pytest.mark.parametrize("seed", [1, 2])
def test_both_predictions_see_the_links_alike(keys, model, seed):
    order = tuple(np.random.default_rng(seed + 10).permutation(8).tolist())
    plan = resolved(keys, random_links(seed), order, model=model)
    played = simulated_estimate(plan.long, plan.setting)
    found = estimated(plan)
    assert sum(played.parts.values()) == pytest.approx(sum(found.parts.values()), rel=0.03)
    assert sum(found.parts.values()) > 1.01 * seconds(keys, model=model)


@settings(deadline=None, max_examples=24)
@given(st.sampled_from(LAYOUTS), st.integers(0, 99), st.integers(0, 7), st.integers(1, 7), st.floats(1, 20))
def test_a_faster_link_makes_no_step_longer(keys, seed, one, apart, factor):
    slow = random_links(seed)
    other = (one + apart) % 8
    faster = [list(row) for row in slow.shares]
    for i, j in ((one, other), (other, one)):
        faster[i][j] = min(1.0, factor * faster[i][j])
    quick = replace(slow, shares=tuple(map(tuple, faster)))
    assert seconds(keys, quick) <= seconds(keys, slow) * (1 + 1e-12)


def test_tiers_are_the_same_by_arithmetic_and_node_by_node():
    tiers = (
        Tier(name="pod", devices=16, oversubscription=8),
        Tier(name="hall", devices=32, oversubscription=20),
    )
    for keys in LAYOUTS:
        assert seconds(keys, tiers=tiers) == pytest.approx(seconds(keys, order=tuple(range(8)), tiers=tiers))


def test_a_message_back_to_the_first_rank_uses_its_own_link():
    """Of four nodes in a chain only the way from the last to the first is slow."""
    shares = np.ones((4, 4))
    shares[0, 3] = shares[3, 0] = 0.1
    cluster = replace(
        load_cluster("h100-sxm-80gb x 32"), links=Links(shares=tuple(map(tuple, shares.tolist())))
    )
    setting = Setting(DENSE, cluster, Workload(seq_len=4096, global_batch=128), STACK)
    links = links_under(None, setting_hardware_times(setting))
    sizes, strides = {"pp": 4, "world": 32}, {"pp": 8, "world": 1}
    assert Mesh(sizes, strides, 8, links=links).congestion(("pp",), "p2p") == 1
    assert Mesh(sizes, strides, 8, links=links, returns=True).congestion(("pp",), "p2p") == 10
    assert Mesh(sizes, strides, 8, links=links, returns=True).congestion(("pp",), "broadcast") == 1
