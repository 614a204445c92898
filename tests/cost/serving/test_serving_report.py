"""The Report of serving plans: laws of a steady state, the public keys, and plans that have no prediction."""

import json
from dataclasses import replace
from math import isclose

import pytest
from serving_cases import ONE_POOL, PHASES, POOLS, serving

from meshwright.cost.serving.serving_errors import serving_problems
from meshwright.cost.serving.serving_report import serving_report
from meshwright.errors import UnsupportedError
from meshwright.plans.serving.resolve_serving import resolve_serving

CLOSED = ("rate_per_s: 2.5", "concurrency: 32")
OF_ISSUE = {
    *("ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "tpot_low_s", "tpot_high_s", "request_latency_s"),
    *("output_tokens_per_s", "output_tokens_per_s_per_device", "usd_per_million_output_tokens"),
    *("joules_per_output_token", "batch", "kv_bytes_per_token", "kv_capacity_tokens", "limited_by", "pools"),
}
OF_A_POOL = {
    *(
        "does",
        "replicas",
        "devices",
        "batch",
        "iteration_s",
        "utilisation",
        "kv_capacity_tokens",
        "memory_bytes",
    )
}


def reported(text=ONE_POOL, *changes):
    return serving_report(resolve_serving(serving(text, *changes)))


def means(text=ONE_POOL, *changes):
    return reported(text, *changes).serving


@pytest.mark.parametrize(("text", "changes"), [(ONE_POOL, ()), (ONE_POOL, (CLOSED,)), (POOLS, ())])
def test_the_public_keys(text, changes):
    data = reported(text, *changes).to_json()
    json.dumps(data, allow_nan=False)
    assert data["unit"] == "request"
    assert set(data["serving"]) >= OF_ISSUE
    assert all(set(pool) == OF_A_POOL for pool in data["serving"]["pools"].values())
    assert data["fits"]


@pytest.mark.parametrize(("text", "changes"), [(ONE_POOL, (CLOSED,)), (POOLS, ())])
def test_the_requests_of_a_closed_loop_are_rate_times_latency(text, changes):
    found, clients = means(text, *changes), 32 if text is ONE_POOL else 512
    assert found["requests_per_s"] * found["request_latency_s"] == pytest.approx(clients, rel=1e-3)


def test_the_latency_is_that_of_the_first_token_and_the_further_ones():
    found = means()
    assert found["request_latency_s"] == pytest.approx(found["ttft_s"] + 199 * found["tpot_s"], rel=1e-12)


def test_arrivals_are_served_as_they_come():
    found = means()
    assert found["requests_per_s"] == pytest.approx(2.5)
    assert found["output_tokens_per_s"] == pytest.approx(500)
    assert found["output_tokens_per_s_per_device"] == pytest.approx(500 / 8)
    assert found["idle_devices"] == 8


@pytest.mark.parametrize("key", ["ttft_s", "tpot_s", "batch", "output_tokens_per_s_per_device"])
def test_twice_the_replicas_with_twice_the_load_are_alike(key):
    one, two = (
        means(ONE_POOL, ("rate_per_s: 2.5", f"concurrency: {32 * n}"), ("replicas: 2", f"replicas: {n}"))
        for n in (1, 2)
    )
    assert one[key] == pytest.approx(two[key], rel=1e-6)


def test_above_capacity_there_is_no_time_to_the_first_token():
    data = reported(ONE_POOL, ("rate_per_s: 2.5", "rate_per_s: 5000.0")).to_json()
    assert data["serving"]["limited_by"] == "capacity"
    assert data["serving"]["ttft_s"] is None
    assert data["step_time_s"] is None
    assert 0 < data["serving"]["requests_per_s"] < 5000


def test_requests_of_one_token_that_come_too_fast_are_limited_by_capacity():
    one = ("output_tokens: 200", "output_tokens: 1")
    found = means(ONE_POOL, one, ("rate_per_s: 2.5", "rate_per_s: 5000.0"))
    assert found["limited_by"] == "capacity"
    assert means(ONE_POOL, one)["limited_by"] != "capacity"


def test_requests_of_one_token_have_no_time_per_further_token():
    found = reported(ONE_POOL, ("output_tokens: 200", "output_tokens: 1")).to_json()["serving"]
    assert found["tpot_s"] is None
    assert found["request_latency_s"] == found["ttft_s"]


def test_a_cached_prefix_brings_the_first_token_earlier():
    times = [
        means(ONE_POOL, ("prefix_tokens: 100", f"prefix_tokens: {tokens}"))["ttft_s"]
        for tokens in (0, 500, 900)
    ]
    assert times == sorted(times, reverse=True)


def test_a_histogram_of_one_length_is_that_length():
    fixed = means(ONE_POOL, ("prefix_tokens: 100", "prefix_tokens: 0"))
    lengths = "lengths: [{input_tokens: 1000, output_tokens: 200, share: 1.0}]"
    found = means(
        ONE_POOL,
        ("input_tokens: 1000, output_tokens: 200", lengths),
        ("prefix_tokens: 100", "prefix_tokens: 0"),
    )
    assert all(
        isclose(found[key], fixed[key], rel_tol=1e-9) for key in ("ttft_s", "tpot_s", "output_tokens_per_s")
    )


def test_more_sequences_than_a_replica_may_have_wait():
    found = means(ONE_POOL, CLOSED, ("layout: {tp: 4}", "layout: {tp: 4}, batching: {max_sequences: 4}"))
    assert found["limited_by"] == "max_sequences"
    assert found["batch"] == pytest.approx(4)


def test_a_plan_whose_weights_do_not_fit_says_so():
    resolved = resolve_serving(serving(ONE_POOL, ("tp: 4", "tp: 1")))
    report = serving_report(resolved)
    assert not report.fits
    assert report.serving["output_tokens_per_s"] == 0
    assert report.to_json()["serving"]["tpot_s"] is None
    (problem,) = serving_problems(report, resolved)
    assert problem.field == "memory_bytes.total"
    assert problem.severity == "error"


def test_limits_that_are_missed_are_doubts():
    limits = "prefix_tokens: 100, objectives: {ttft_ms: 1, tpot_ms: 0.5}"
    resolved = resolve_serving(serving(ONE_POOL, ("prefix_tokens: 100", limits)))
    found = [*serving_problems(serving_report(resolved), resolved)]
    assert [one.field for one in found] == ["workload.objectives.ttft_ms", "workload.objectives.tpot_ms"]
    assert {one.severity for one in found} == {"warning"}


def test_what_is_not_predicted_yet_is_refused_by_name_all_at_once():
    two = PHASES.replace("pools:\n", "pools:\n  other: {does: serve}\n").replace(
        "h100-sxm-80gb x 8", "a10 x 16"
    )
    with pytest.raises(UnsupportedError) as error:
        reported(two)
    node = "cluster.pools.0.node"
    fields = [one.field for one in error.value.problems]
    assert fields == ["pools", f"{node}.host_gbyte_per_s_per_device", f"{node}.host_memory_gib"]


@pytest.mark.parametrize("form", ["two-batch", "tile", "nano-batch"])
def test_overlap_shortens_latencies(form):
    plain, overlapped = (
        means(ONE_POOL, ("layout: {tp: 4}", f"layout: {{tp: 4}}, overlap: {name}"))["ttft_s"]
        for name in ("none", form)
    )
    assert overlapped < plain


def test_memory_is_the_sum_of_its_parts_and_within_the_device():
    memory = reported(POOLS).memory_bytes
    for ledger in memory["pools"].values():
        parts = sum(value for name, value in ledger.items() if name != "total")
        assert ledger["total"] == parts <= memory["capacity"]
    assert memory["total"] == max(ledger["total"] for ledger in memory["pools"].values())


def test_the_time_of_a_request_is_the_sum_of_its_parts():
    report = reported(POOLS)
    assert sum(report.breakdown_s.values()) == pytest.approx(report.step_time_s, rel=1e-9)


def phased(*changes, load="concurrency: 256"):
    return reported(PHASES, ("workload:", f"workload:\n  {load}"), *changes)


@pytest.mark.parametrize("load", ["concurrency: 256", "rate_per_s: 2.0"])
def test_the_public_keys_of_phases_with_layouts_of_their_own(load):
    data = phased(load=load).to_json()
    json.dumps(data, allow_nan=False)
    assert set(data["serving"]) >= OF_ISSUE
    assert [set(pool) for pool in data["serving"]["pools"].values()] == [OF_A_POOL]
    assert sum(data["breakdown_s"].values()) == pytest.approx(data["step_time_s"])
    assert min(data["breakdown_s"].values()) >= 0
    assert data["breakdown_s"]["buffered"] > 0


def test_phases_that_take_turns_keep_littles_law():
    found = phased().serving
    assert found["requests_per_s"] * found["request_latency_s"] == pytest.approx(256, rel=1e-6)
    turn = found["cycle"]
    assert turn["sequences"] / turn["cycle_s"] == pytest.approx(found["requests_per_s"], rel=0.5)
    parts = sum(turn[f"{part}_s"] for part in ("prefill", "change", "fetch", "decode", "back"))
    assert turn["cycle_s"] == pytest.approx(parts)
    assert found["batch"] <= found["kv_capacity_tokens"]
    assert "cycle" not in means()


def test_phases_with_equal_layouts_are_one_pool_that_changes_nothing():
    alike = phased(("prefill: {pp: 2, tp: 4}", "prefill: {tp: 8}")).serving
    assert alike == phased(("layouts: {prefill: {pp: 2, tp: 4}, decode: {tp: 8}}", "layout: {tp: 8}")).serving
    assert "cycle" not in alike


def test_a_pool_that_changes_its_layout_has_the_memory_of_the_fuller_phase():
    """Of stages the first has one layer's embedding more than a rank of tp: parameters are those of one phase."""
    memory = phased().memory_bytes
    assert memory["total"] == memory["parameters"] + memory["kv"] + memory["activations"] + memory["buffers"]
    one = [
        reported(ONE_POOL, ("layout: {tp: 4}", layout), ("replicas: 2", "replicas: 1")).memory_bytes
        for layout in ("layout: {tp: 8}", "layout: {pp: 2, tp: 4}")
    ]
    assert memory["total"] == max(ledger["total"] for ledger in one)


def test_a_phase_without_room_does_not_fit():
    found = phased(("llama-3.1-70b", "llama-3.1-405b"))
    assert not found.fits
    assert found.to_json()["serving"]["ttft_s"] is None


def test_a_phased_pool_above_capacity_has_no_first_token():
    found = phased(load="rate_per_s: 1000.0").to_json()["serving"]
    assert (found["limited_by"], found["ttft_s"]) == ("capacity", None)
    most = found["requests_per_s"]
    below = phased(load=f"rate_per_s: {0.9 * most}").serving
    assert below["requests_per_s"] == pytest.approx(0.9 * most)
    assert below["ttft_s"] > 0


def test_phases_of_requests_with_one_token_keep_the_layout_of_prefill():
    (lengths,) = (line.strip() for line in PHASES.splitlines() if "lengths" in line)
    changes = (lengths, "input_tokens: 500\n  output_tokens: 1")
    own = phased(changes).serving
    alone = phased(changes, ("layouts: {prefill: {pp: 2, tp: 4}, decode: {tp: 8}}", "layout: {pp: 2, tp: 4}"))
    assert own["ttft_s"] == alone.serving["ttft_s"]


def test_an_unknown_memory_of_the_host_is_an_assumption_that_is_named():
    resolved = resolve_serving(serving(PHASES, ("workload:", "workload:\n  concurrency: 256")))
    assert serving_report(resolved).remarks == ()
    pool = resolved.cluster.pool
    unknown = replace(pool, node=replace(pool.node, host_memory_bytes=None))
    report = serving_report(replace(resolved, cluster=replace(resolved.cluster, pools=(unknown,))))
    (remark,) = report.remarks
    assert "256 requests" in remark
    assert report.serving["cycle"]["buffer_sequences"] is None


def test_a_host_without_room_for_the_weights_is_refused_by_name():
    resolved = resolve_serving(serving(PHASES, ("workload:", "workload:\n  concurrency: 256")))
    pool = resolved.cluster.pool
    small = replace(pool, node=replace(pool.node, host_memory_bytes=64 * 2**30))
    with pytest.raises(UnsupportedError) as error:
        serving_report(replace(resolved, cluster=replace(resolved.cluster, pools=(small,))))
    assert [one.field for one in error.value.problems] == ["cluster.pools.0.node.host_memory_gib"]


def test_a_slow_network_between_pools_limits_what_they_write(tmp_path):
    pools = (
        "pools: {fill: {does: prefill, replicas: 2, layout: {tp: 8}}, write: {does: decode, layout: {tp: 8}}}"
    )
    edges = "edges: [{from: fill, to: write, carry: kv}]"
    workload = "workload: {task: serve, input_tokens: 4000, output_tokens: 1000, concurrency: 64}"
    header = "plan: 1\nmodel: llama-3.1-70b\ncluster: h200-sxm-141gb x 24\nstack: vllm"
    text = "\n".join((header, workload, pools, edges, ""))

    def over(gbit_per_s):
        file = tmp_path / f"{gbit_per_s}.yaml"
        node = f"{{like: dgx-h200, nic_gbit_per_s_per_node: {gbit_per_s}}}"
        file.write_text(f"name: slow\npools: [{{device: h200-sxm-141gb, count: 24, node: {node}}}]\n")
        return means(text, ("h200-sxm-141gb x 24", str(file)))

    assert means(text)["limited_by"] not in ("handover", "capacity")
    half, whole = over(4), over(8)
    assert half["limited_by"] == whole["limited_by"] == "handover"
    assert half["requests_per_s"] / whole["requests_per_s"] == pytest.approx(0.5, rel=0.02)
    assert whole["output_tokens_per_s"] < 0.9 * means(text)["output_tokens_per_s"]
    assert whole["requests_per_s"] * whole["request_latency_s"] == pytest.approx(64, rel=1e-3)
