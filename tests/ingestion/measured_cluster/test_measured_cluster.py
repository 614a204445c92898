"""A measured machine becomes a cluster: hidden constants are found, and what was not measured is said."""

import json
import random
from dataclasses import replace
from functools import cache

import pytest
from measured_machine import H100, measured

from meshwright.cluster.cluster import Sourced, Tier
from meshwright.cluster.file_schema import CalibratedName
from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import constants, kernels
from meshwright.errors import InputError
from meshwright.ingestion.measured_cluster.cluster_file import cluster_from
from meshwright.ingestion.measured_cluster.hardware import best_rate, sent_share
from meshwright.ingestion.measured_cluster.kernel_constants import fit_kernels, training_fraction
from meshwright.measurement.results import KernelTime, read_results

DEVICE = "h100-sxm-80gb"
HIDDEN = {
    "gemm_efficiency": 0.61,
    "gemm_memory_efficiency": 0.5,
    "gemm_launch_s": 6e-6,
    "hbm_efficiency": 0.88,
    "attention_efficiency.flash": 0.42,
    "attention_efficiency.flash3": 0.71,
    "attention_backward_efficiency": 0.66,
    "nic_efficiency": 0.5,
}
OF_KERNELS = {name: value for name, value in HIDDEN.items() if name != "nic_efficiency"}
BARE = {
    name: value / training_fraction(name, DEVICE)
    for name, value in {
        "gemm_efficiency": kernels(DEVICE).gemm_efficiency,
        "attention_efficiency.flash": kernels(DEVICE).attention_efficiency["flash"],
        "attention_efficiency.flash3": kernels(DEVICE).attention_efficiency["flash3"],
        "hbm_efficiency": constants()["hbm_efficiency"],
        "attention_backward_efficiency": constants()["attention_backward_efficiency"],
    }.items()
}


def fitted(results):
    return {c.name: c for c in fit_kernels(results, load_cluster(f"{DEVICE} x 16"))}


def of_kernels(results):
    """The results without exchanges, whose fit takes most of the time."""
    return results.model_copy(update={"collectives": (), "groups": ()})


@cache
def usual():
    """The cluster of a machine with the constants that are known."""
    return cluster_from(measured())


@cache
def with_slow_cards():
    """What was measured over two hosts whose cards reach 0.3 of their rate."""
    return measured({"nic_efficiency": 0.3}, nodes=2)


def slowed(results, **changes):
    """The results with other fields of the machine."""
    data = results.machine.model_dump() | changes
    return results.model_copy(update={"machine": type(results.machine).model_validate(data)})


def own_device(**changes):
    """A CPU that nobody knows, with two processes on each of two hosts."""
    results = measured(
        nodes=changes.pop("nodes", 2), devices=2, name="Some CPU @ 3 GHz", kind="cpu", memory=2**34
    )
    return results.model_copy(update=changes)


def test_hidden_constants_of_kernels_are_recovered():
    found = fitted(measured(HIDDEN))
    assert {name: c.measured for name, c in found.items()} == pytest.approx(OF_KERNELS, rel=0.01)
    assert all(c.error < 1e-3 and not c.at_bound for c in found.values())


@pytest.mark.parametrize("seed", range(3))
def test_noise_moves_them_by_a_few_percent(seed):
    found = fitted(measured(HIDDEN, noise=0.02, seed=seed))
    measured_values = {name: c.measured for name, c in found.items()}
    assert measured_values == pytest.approx(OF_KERNELS, rel=0.06)


def test_a_slow_device_does_not_spoil_them():
    found = fitted(measured(HIDDEN, slow_rank=3))
    assert {name: c.measured for name, c in found.items()} == pytest.approx(OF_KERNELS, rel=0.01)


def test_a_machine_on_which_kernels_take_what_the_reference_took_keeps_its_constants():
    made = cluster_from(of_kernels(measured(BARE)))
    for constant in made.kernels:
        assert constant.value == pytest.approx(constant.present, rel=0.01), constant.name
    values = dict(made.cluster.calibration)
    assert values["gemm_efficiency"] == pytest.approx(kernels(DEVICE).gemm_efficiency, rel=0.01)


def test_the_reference_is_the_bare_figure_that_was_published():
    """aiconfigurator-core's kernels: .775 of an H100's peak, .858 of an A100's (the origins of the priors)."""
    for device, bare in (("h100-sxm-80gb", 0.775), ("a100-sxm-80gb", 0.858)):
        kept = training_fraction("gemm_efficiency", device)
        assert bare * kept == pytest.approx(kernels(device).gemm_efficiency, rel=0.01)


def test_a_machine_twice_as_slow_has_half_the_efficiency():
    half = BARE | {"gemm_efficiency": BARE["gemm_efficiency"] / 2}
    values = dict(cluster_from(of_kernels(measured(half))).cluster.calibration)
    assert values["gemm_efficiency"] == pytest.approx(kernels(DEVICE).gemm_efficiency / 2, rel=0.02)


def test_slow_cards_are_found_across_hosts():
    values = dict(cluster_from(with_slow_cards()).cluster.calibration)
    assert values["nic_efficiency"] == pytest.approx(0.3, rel=0.05)


def test_the_file_is_the_cluster_and_says_where_its_numbers_are_from():
    made = usual()
    assert load_cluster(made.text) == made.cluster
    assert made.cluster.pool.device.id == DEVICE
    assert made.cluster.devices == 16
    assert "measured 2026-11-21 with torch 2.13.0, backend nccl" in made.cluster.source
    assert set(dict(made.cluster.calibration)) <= set(CalibratedName.__args__)


def test_what_a_file_can_not_carry_is_a_finding_with_its_value():
    made = cluster_from(of_kernels(measured(HIDDEN)))
    carried = dict(made.cluster.calibration)
    said = "\n".join(made.findings)
    for constant in made.kernels:
        assert constant.name in said
        shown = carried.get(constant.name, constant.value)
        assert f"{constant.name} {shown:.4g}" in said
    assert "a launch keeps the host for 5.0 µs" in said


def test_devices_that_differ_are_waited_for():
    noisy = cluster_from(of_kernels(measured(noise=0.05)))
    alike, mixed = usual().cluster, noisy.cluster
    assert alike.step_jitter == 0
    products = 6
    assert mixed.step_jitter == pytest.approx(0.05 / products**0.5, rel=0.5)
    assert load_cluster(noisy.text).step_jitter == mixed.step_jitter
    assert cluster_from(of_kernels(own_device())).cluster.step_jitter is None
    assert cluster_from(of_kernels(measured(nodes=1, devices=2))).cluster.step_jitter is None


def test_a_cpu_launches_in_addition_and_its_host_time_is_measured():
    results = of_kernels(own_device())
    layer = KernelTime(
        kind="layer",
        dtype="bf16",
        shape=(8, 64),
        flops=1.0,
        moved_bytes=1.0,
        seconds=(4.3e-3,) * results.machine.ranks,
        spread_s=(0.0,) * results.machine.ranks,
        repeats=50,
    )
    made = cluster_from(results.model_copy(update={"kernels": (*results.kernels, layer)}))
    assert made.cluster.pool.device.synchronous
    assert dict(made.cluster.calibration)["host_s_per_layer"] == pytest.approx(2e-3)
    assert not usual().cluster.pool.device.synchronous


def test_a_base_keeps_what_no_measurement_says():
    base = replace(
        load_cluster(f"{DEVICE} x 512"),
        tiers=(Tier(name="pod", devices=128, oversubscription=4.0),),
        calibration=(("host_s_per_layer", 4e-4),),
    )
    pool = replace(base.pool, usd_per_device_hour=Sourced(1.5, "contract", "2026"))
    base = replace(base, pools=(pool,))
    made = cluster_from(with_slow_cards(), base).cluster
    assert (made.pools, made.tiers) == (base.pools, base.tiers)
    values = dict(made.calibration)
    assert values["host_s_per_layer"] == 4e-4
    assert values["nic_efficiency"] == pytest.approx(0.3, rel=0.05)


def test_a_base_of_another_device_or_of_several_pools_is_refused():
    with pytest.raises(InputError, match="h100-sxm-80gb"):
        cluster_from(measured(), load_cluster("a100-sxm-80gb x 16"))
    one = load_cluster(f"{DEVICE} x 8")
    two = replace(one, pools=(one.pool, replace(one.pool, name="other")))
    with pytest.raises(InputError, match="one kind of device"):
        cluster_from(measured(), two)


def test_several_kinds_of_devices_are_refused_by_name():
    results = measured(nodes=1, devices=2)
    with pytest.raises(InputError, match="NVIDIA A100"):
        cluster_from(slowed(results, device_names=(H100, "NVIDIA A100-SXM4-80GB")))


def test_fewer_devices_than_a_node_has_are_a_finding():
    made = cluster_from(of_kernels(measured(devices=4)))
    assert made.cluster.pool.node.devices == 8
    assert any("4 devices of each host were measured" in finding for finding in made.findings)


def test_an_unknown_device_gets_the_rates_that_it_reached():
    results = own_device()
    made = cluster_from(results)
    pool = made.cluster.pool
    assert load_cluster(made.text) == made.cluster
    assert (pool.device.id, pool.count, pool.node.devices) == ("some-cpu-3-ghz", 4, 2)
    fastest = max(k.flops / k.seconds[0] for k in results.kernels if k.kind == "matmul")
    assert pool.device.peak_flops == {"bf16": pytest.approx(fastest, rel=1e-3)}
    (one,) = (k for k in results.kernels if k.kind == "pass")
    assert pool.device.memory_bytes_per_s == pytest.approx(one.moved_bytes / one.seconds[0], rel=1e-3)
    assert pool.device.memory_bytes == 2**34
    assert "not in the catalogue" in made.findings[0]
    exchanged = [t for t in results.in_scope("node", "device pair") if t.kind == "send-recv"]
    slowest = min(t.bytes / t.seconds for t in exchanged)
    assert pool.node.scaleup_bytes_per_s >= slowest
    assert pool.node.nic_bytes_per_s > 0


def test_rates_that_were_not_measured_are_the_lowest_and_a_finding():
    alone = own_device(nodes=1)
    made = cluster_from(alone)
    assert any("no two hosts were measured" in finding for finding in made.findings)
    assert made.cluster.pool.node.nic_bytes_per_s == pytest.approx(0.1e9 / 8)
    assert load_cluster(made.text) == made.cluster
    lonely = alone.model_copy(update={"collectives": (), "groups": ()})
    said = "\n".join(cluster_from(lonely).findings)
    assert "no two devices of a host were measured" in said


def test_measured_figures_that_nobody_would_believe_are_named_and_kept():
    slow = tuple(t.model_copy(update={"seconds": t.seconds * 1e3}) for t in own_device().collectives)
    made = cluster_from(own_device(collectives=slow))
    assert any("scaleup_gbyte_per_s_per_device" in finding for finding in made.findings)
    read = load_cluster(made.text).pool.device
    assert read.scaleup_bytes_per_s == pytest.approx(made.cluster.pool.device.scaleup_bytes_per_s)
    by_hand = made.text.replace("confidence: measured", "confidence: as given")
    with pytest.raises(InputError, match="scaleup_gbyte_per_s_per_device"):
        load_cluster(by_hand)


def test_an_unknown_device_without_products_is_refused():
    results = own_device()
    passes = tuple(kernel for kernel in results.kernels if kernel.kind == "pass")
    with pytest.raises(InputError, match="products"):
        cluster_from(own_device(kernels=passes))


def test_too_few_products_leave_the_constant_alone():
    results = of_kernels(measured(HIDDEN))
    few = [k for k in results.kernels if k.kind == "matmul"][:2]
    made = cluster_from(results.model_copy(update={"kernels": tuple(few)}))
    assert "gemm_efficiency" not in dict(made.cluster.calibration)
    assert made.kernels == ()


def test_products_of_other_precisions_give_peaks_and_no_constants():
    results = own_device()
    single = tuple(
        KernelTime.model_validate(k.model_dump() | {"dtype": "fp32"})
        for k in results.kernels
        if k.kind == "matmul"
    )
    made = cluster_from(own_device(kernels=(*results.kernels, *single)))
    assert set(made.cluster.pool.device.peak_flops) == {"bf16", "fp32"}
    only = cluster_from(own_device(kernels=(*(k for k in results.kernels if k.kind == "pass"), *single)))
    assert "gemm_efficiency" not in {constant.name for constant in only.kernels}


def test_what_was_cut_is_a_finding():
    cut = tuple(f"all-reduce of {size} bytes and more" for size in range(7))
    made = cluster_from(of_kernels(measured()).model_copy(update={"unfinished": cut}))
    assert any("(7 in all)" in finding and cut[0] in finding for finding in made.findings)


def test_a_ring_sends_twice_for_a_sum_and_once_for_a_copy():
    for ranks, local in ((2, 1), (8, 1), (16, 8), (64, 8)):
        copied = sent_share("all-gather", ranks, local)
        assert sent_share("reduce-scatter", ranks, local) == copied
        assert sent_share("all-reduce", ranks, local) == 2 * copied
        assert copied * local <= 1
    assert sent_share("all-reduce", 2, 1) == 1
    assert sent_share("send-recv", 2, 1) == 1
    assert sent_share("all-to-all", 16, 8) == 0.5


def test_the_best_rate_is_of_groups_with_equal_hosts():
    times = own_device().in_scope("nodes")
    uneven = [time.model_copy(update={"local": 0, "seconds": 1e-12}) for time in times]
    assert best_rate([*times, *uneven], inside=False) == best_rate(times, inside=False) > 0
    assert best_rate(uneven, inside=False) == 0


def test_a_form_that_can_not_fit_leaves_the_constant_alone():
    """Products a hundred times faster than any peak would need an efficiency above its bound."""
    results = of_kernels(measured())
    fast = tuple(
        k.model_copy(update={"seconds": tuple(s / 100 for s in k.seconds)}) if k.kind == "matmul" else k
        for k in results.kernels
    )
    made = cluster_from(results.model_copy(update={"kernels": fast}))
    assert "gemm_efficiency" not in dict(made.cluster.calibration)
    assert any("gemm_efficiency is not credible" in finding for finding in made.findings)


@pytest.mark.slow
@pytest.mark.parametrize("unknown", [False, True], ids=["known device", "unknown device"])
def test_damaged_results_are_refused_or_made_the_best_of(unknown):
    """Whatever stands in one place of the text: a cluster, or a refusal that says why, and nothing else."""
    whole = json.loads((own_device() if unknown else measured(devices=2)).to_text())
    made = [_made_of(_damaged(whole, random.Random(seed))) for seed in range(30)]
    assert all(made)
    assert "refused" in made


def _made_of(data):
    """The text of a cluster file, or that it was refused with a reason."""
    try:
        return cluster_from(read_results(json.dumps(data))).text
    except InputError as error:
        return "refused" if error.problems else ""


def _damaged(whole, choices):
    """A copy with a strange value somewhere."""
    data = inner = json.loads(json.dumps(whole))
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = choices.choice(keys)
        if isinstance(inner[key], dict | list) and inner[key] and choices.random() < 0.85:
            inner = inner[key]
            continue
        inner[key] = choices.choice(
            [0, -1, 1e300, 1e-300, "", None, [], {}, 2**70, "a" * 5000, True, [1], 10**400]
        )
        return data
