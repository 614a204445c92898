"""What was counted of routers, as a Program's shape has it: nodes and ranks that tokens reach, under any order."""

from array import array
from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.plan_report import group_of
from meshwright.model.load import load_model
from meshwright.placement.expert_order.problem import DispatchLoad
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortLayout, ShortPlan, WorkloadSpec
from meshwright.plans.setting import Setting
from meshwright.program.expert_dispatch.dispatch_fanout import ExpertChoice, mean_dispatch_fanout
from meshwright.program.expert_dispatch.fanout_from_router_counts import fanout_from_counts, router_counts
from meshwright.stack.load import load_stack
from meshwright.verbs.plan.expert_placement import expert_task
from meshwright.workload.expert_routing import Pairs, Routing
from meshwright.workload.workload import Workload

MODEL = load_model("mixtral-8x7b")
MOE = MODEL.architecture.moe
STACK = replace(load_stack("generic"), deduplicates_exchange=True)
CLUSTER = load_cluster("h100-sxm-80gb x 32")


def chosen_pairs(seed=0, layers=32, tokens=400):
    """Tokens that choose two experts of eight, and how often they choose both."""
    rng = np.random.default_rng(seed)
    made = np.zeros((layers, tokens, 8))
    picked = np.argsort(rng.gumbel(size=made.shape) + rng.normal(size=(layers, 1, 8)), axis=2)[:, :, :2]
    np.put_along_axis(made, picked, 1, 2)
    return made, Pairs(8, array("d", np.einsum("lti,ltj->lij", made, made).ravel()).tobytes())


@pytest.mark.parametrize("order", [None, ((5, 0, 7, 2, 1, 3, 6, 4),), "each"])
@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_two_choices_reach_what_was_counted(order, parts):
    made, pairs = chosen_pairs()
    if order == "each":
        order = tuple(tuple(map(int, np.random.default_rng(layer).permutation(8))) for layer in range(32))
    rows = np.array(order or (tuple(range(8)),))
    rows = np.broadcast_to(rows, (32, 8))
    held = np.take_along_axis(made, rows[:, None, :], 2).reshape(32, -1, parts, 8 // parts)
    expected = (held.sum(3) > 0).sum(2).mean()
    found = fanout_from_counts(Routing(pairs), MOE, order)
    assert found(parts) == pytest.approx(expected)
    assert mean_dispatch_fanout(parts, ExpertChoice(8, 2, counted=found)) == pytest.approx(expected)
    assert mean_dispatch_fanout(np.array([parts, 1]), ExpertChoice(8, 2, counted=found)) == pytest.approx(
        [expected, 1]
    )


def test_counts_say_nothing_of_pairs():
    _, pairs = chosen_pairs()
    assert router_counts(pairs, 2).singles == pytest.approx(router_counts(pairs.counts, 2).singles)
    assert router_counts(pairs.counts, 2).pairs is None
    assert fanout_from_counts(Routing(pairs.counts), MOE, None) is None
    assert fanout_from_counts(None, MOE, None) is None


def plan_and_setting(said, order=None, stack=STACK):
    layout = ShortLayout(dp_shard=32, ep=4, expert_order=order)
    spec = WorkloadSpec(seq_len=4096, global_batch=64)
    short = ShortPlan(
        plan=1,
        model="mixtral-8x7b",
        cluster="h100-sxm-80gb x 32",
        workload=spec,
        stack="generic",
        layout=layout,
        sharding="zero1",
    )
    workload = Workload(seq_len=4096, global_batch=64, routing=Routing(said))
    return short, Setting.of(MODEL, CLUSTER, workload, stack)


@pytest.mark.parametrize("domain", [2, 1, 8])
@pytest.mark.parametrize("deduplicates", [True, False])
def test_the_price_of_a_layer_is_that_of_the_plan(domain, deduplicates):
    """Where all layers are alike, what placement feels of a layer is what the plan's passes take."""
    _, pairs = chosen_pairs(layers=1)
    same = Pairs(8, pairs.values * 32)
    order = ((5, 0, 7, 2, 1, 3, 6, 4),)
    node = replace(CLUSTER.pool.node, scaleup_domain=domain)
    cluster = replace(CLUSTER, pools=(replace(CLUSTER.pool, node=node),))
    stack = replace(STACK, deduplicates_exchange=deduplicates)
    short, setting = plan_and_setting(same, order, stack)
    setting = replace(setting, cluster=cluster)
    task = expert_task(short, expand(short, MODEL.architecture), setting)
    assert (task.ranks, task.nodes) == (4, max(1, 4 // domain))
    found = task.seconds(task.meeting(np.array(order), np.zeros(1, dtype=int)))
    group = group_of(short, setting)
    (block,) = (at for at, one in enumerate(MODEL.blocks) if one.kind == "layer")
    expected = sum(sum(group.prices.block(block, kind).values()) for kind in group.pass_kinds)
    assert found == pytest.approx(np.asarray(expected, dtype=float).ravel(), rel=1e-9)
    worse = task.seconds(
        DispatchLoad(*(2 * value for value in task.meeting(np.array(order), np.zeros(1, dtype=int))))
    )
    assert worse > found
