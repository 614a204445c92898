"""Serving plans in full: layouts of phases, meshes of experts, lengths of requests."""

from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import ONE_POOL, PHASES, POOLS, serving, serving_files

from meshwright.plans.serving.expand_pools import expand_pools, replica_layout, serving_workload
from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.plans.serving.serving_file import ReplicaLayoutSpec
from meshwright.plans.serving.serving_plan import HandOver

DEGREE = st.integers(1, 64)


def test_a_pool_that_serves_has_one_layout_for_both_phases():
    plan = expand_pools(serving(ONE_POOL), experts=False)
    pool = plan.pools["all"]
    assert pool.layouts == {"prefill": ReplicaLayout(tp=4), "decode": ReplicaLayout(tp=4)}
    assert (pool.devices_of_replica, pool.devices, plan.devices) == (4, 8, 8)
    assert (plan.model, plan.cluster, plan.stack) == ("llama-3.1-70b", "h100-sxm-80gb x 16", "vllm")


def test_a_pool_may_have_a_layout_for_each_phase():
    pool = expand_pools(serving(PHASES), experts=False).pools["all"]
    assert pool.layouts == {"prefill": ReplicaLayout(pp=2, tp=4), "decode": ReplicaLayout(tp=8)}
    assert pool.devices == 8


def test_pools_of_one_phase_and_their_edge():
    plan = expand_pools(serving(POOLS), experts=True)
    assert {name: [*pool.layouts] for name, pool in plan.pools.items()} == {
        "fill": ["prefill"],
        "write": ["decode"],
    }
    assert plan.edges == (HandOver("fill", "write"),)
    assert [pool.devices for pool in plan.pools.values()] == [16, 16]
    assert (plan.pools["write"].formats.weights, plan.pools["fill"].formats.weights) == ("fp8", None)


@pytest.mark.parametrize(
    ("written", "ep", "etp"),
    [
        ({"tp": 8}, 1, 8),
        ({"tp": 8, "ep": 8}, 8, 1),
        ({"tp": 4, "attention_dp": 4, "ep": 8}, 8, 2),
        ({"tp": 4, "cp": 2, "pp": 3}, 1, 8),
        ({"tp": 8, "etp": 2}, 1, 2),
        ({"tp": 8, "ep": 16}, 16, 1),
    ],
)
def test_an_absent_mesh_of_experts_fills_a_stage(written, ep, etp):
    layout = replica_layout(ReplicaLayoutSpec(**written), experts=True)
    assert (layout.ep, layout.etp) == (ep, etp)
    dense = replica_layout(ReplicaLayoutSpec(**written), experts=False)
    assert (dense.ep, dense.etp) == (written.get("ep", 1), written.get("etp", 1))


@given(st.fixed_dictionaries(dict.fromkeys(("attention_dp", "tp", "pp", "cp"), DEGREE)))
def test_the_devices_of_a_replica_are_the_product_of_its_degrees(written):
    layout = replica_layout(ReplicaLayoutSpec(**written), experts=True)
    assert layout.devices == written["pp"] * written["cp"] * written["tp"] * written["attention_dp"]
    assert layout.ep * layout.etp * layout.pp == layout.devices


@settings(max_examples=30, deadline=None)
@given(serving_files(), st.booleans())
def test_nothing_that_a_file_says_is_lost(file, experts):
    plan = expand_pools(file, experts=experts)
    assert [*plan.pools] == [*file.pools]
    for name, pool in plan.pools.items():
        spec = file.pools[name]
        assert (pool.name, pool.does, pool.replicas) == (name, spec.does, spec.replicas)
        assert asdict(pool.batching) == spec.batching.model_dump()
        assert asdict(pool.formats) == spec.quantise.model_dump()
        assert (pool.overlap, pool.allreduce) == (spec.overlap, spec.allreduce)
        layout = pool.layouts["decode" if spec.does == "decode" else "prefill"]
        first = spec.layouts.prefill if spec.layouts else spec.layout or ReplicaLayoutSpec()
        kept = ("attention_dp", "tp", "pp", "cp")
        assert [getattr(layout, key) for key in kept] == [getattr(first, key) for key in kept]


def test_the_load_and_the_limits_of_a_workload():
    open_load, closed = (serving_workload(serving(text).workload) for text in (ONE_POOL, POOLS))
    assert (open_load.rate_per_s, open_load.concurrency) == (2.5, None)
    assert (closed.rate_per_s, closed.concurrency) == (None, 512)
    assert (open_load.objectives.ttft_ms, open_load.objectives.tpot_ms) == (None, None)
    assert (closed.objectives.ttft_ms, closed.objectives.tpot_ms) == (2000, 50)
    assert open_load.lengths.prefix_tokens == 100
    neither = serving_workload(serving(PHASES).workload)
    assert (neither.rate_per_s, neither.concurrency) == (None, None)


def test_a_histogram_has_exact_shares_and_their_means():
    lengths = serving_workload(serving(PHASES).workload).lengths
    assert lengths.pairs == ((500, 100, 0.75), (4000, 20, 0.25))
    assert (lengths.mean_input, lengths.mean_output) == (1375, 80)
    thirds = serving(PHASES, ("share: 0.75", "share: 0.3333333"), ("share: 0.25", "share: 0.6666666"))
    assert sum(share for _, _, share in serving_workload(thirds.workload).lengths.pairs) == pytest.approx(
        1, abs=1e-15
    )
