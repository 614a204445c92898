import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from nccl_output import Run, text

from meshwright.cluster.file_schema import CalibratedName
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError
from meshwright.ingestion.nccl_tests.constant_fit import fit_collectives
from meshwright.ingestion.nccl_tests.fitted_values import WORDS
from meshwright.ingestion.nccl_tests.predicted_times import PROCESS_LATENCY, changed, current_forms
from meshwright.ingestion.nccl_tests.reader import parse_nccl_tests, read_nccl_tests

SAMPLES = Path(__file__).parent / "samples"
SIZES = tuple(2**power for power in range(10, 35))
CLUSTER = load_cluster("h100-sxm-80gb x 64")
DEVICES = 8
LINK = CLUSTER.pool.node.scaleup_bytes_per_s


def curve_of(name):
    """A curve inside a domain, by the keys of a cluster file."""
    numbers = {"latency_s": 1.2e-5, "efficiency": 0.69, "saturation_bytes": 9e7}
    return {f"{name}.{key}": value for key, value in numbers.items()}


def made(forms, name, ranks=8, nodes=1, one_process=True, sizes=SIZES):
    """Output of a test that takes what the form says."""
    local = ranks // nodes
    quiet = changed(forms, {PROCESS_LATENCY: 0.0}) if one_process else forms
    if name == "send-receive":
        times = {size: float(forms.p2p(size, local < ranks)) for size in sizes}
    else:
        times = {size: float(quiet.collective(name, size, ranks, local)) for size in sizes}
    return text(Run(name, times, ranks=ranks, nodes=nodes, one_process=one_process))


def fitted(*tables, cluster=CLUSTER):
    return fit_collectives(parse_nccl_tests("\n".join(tables)).records, cluster)


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        ("all-reduce", "all_reduce"),
        ("all-gather", "all_gather"),
        ("reduce-scatter", "all_gather"),
        ("all-to-all", "all_gather"),
    ],
)
def test_curves_inside_a_domain_are_recovered(name, curve):
    forms = changed(current_forms(CLUSTER), curve_of(curve))
    found = fitted(made(forms, name))
    assert found.fits[0].error_max < 0.02
    assert found.calibration == pytest.approx(curve_of(curve), rel=0.04)


def test_groups_of_several_sizes_show_the_latency_of_a_rank():
    true = curve_of("all_reduce") | {"all_reduce.latency_per_rank_s": 4e-6}
    forms = changed(current_forms(CLUSTER), true)
    found = fitted(*(made(forms, "all-reduce", ranks=ranks) for ranks in (2, 4, 8)))
    assert found.calibration == pytest.approx(true, rel=0.05)


def test_the_curve_of_less_latency_tells_what_processes_add():
    quick, slow = changed(current_forms(CLUSTER), {PROCESS_LATENCY: 3e-5}), {"all_reduce.latency_s": 7e-5}
    tables = [
        made(quick, "all-gather", one_process=False),
        made(changed(quick, slow), "all-reduce", one_process=False),
    ]
    found = fitted(*tables).calibration
    assert found[PROCESS_LATENCY] == pytest.approx(3e-5, rel=0.05)
    assert found["all_reduce.latency_s"] == pytest.approx(7e-5, rel=0.05)
    assert "all_gather.latency_s" not in found


def test_the_latency_of_a_process_per_device_has_a_constant():
    forms = changed(current_forms(CLUSTER), {PROCESS_LATENCY: 3e-5})
    found = fitted(made(forms, "all-reduce", one_process=False))
    assert found.calibration[PROCESS_LATENCY] == pytest.approx(3e-5, rel=0.03)


@pytest.mark.parametrize("name", ["all-reduce", "all-gather", "all-to-all"])
def test_constants_across_nodes_are_recovered(name):
    true = {"nic_latency_s": 9e-5, "nic_saturation_bytes": 1.5e8, "nic_efficiency": 0.55}
    forms = changed(current_forms(CLUSTER), true)
    found = fitted(made(forms, name, ranks=64, nodes=8))
    if name == "all-to-all":  # whose small messages are as quick as its large ones
        del true["nic_saturation_bytes"]
    assert found.calibration == pytest.approx(true, rel=0.05)
    assert found.fits[0].error_max < 0.02


def test_all_kinds_across_nodes_are_fitted_together():
    true = {"nic_latency_s": 9e-5, "nic_saturation_bytes": 1.5e8, "nic_efficiency": 0.55}
    forms = changed(current_forms(CLUSTER), true | curve_of("all_reduce"))
    inside = made(forms, "all-reduce")
    across = [made(forms, name, ranks=64, nodes=8) for name in ("all-reduce", "reduce-scatter", "all-to-all")]
    found = fitted(inside, *across)
    assert found.calibration == pytest.approx(true | curve_of("all_reduce"), rel=0.05)
    assert found.fits[-1].collectives == ("all-reduce", "all-to-all", "reduce-scatter")


def test_messages_are_recovered():
    true = {"p2p_latency_s": 4e-5, "p2p_scaleup_efficiency": 0.6, "p2p_nic_efficiency": 0.7}
    forms = changed(current_forms(CLUSTER), true)
    inside = fitted(made(forms, "send-receive", ranks=4))
    assert inside.calibration["p2p_scaleup_efficiency"] == pytest.approx(0.6, rel=0.02)
    across = fitted(made(forms, "send-receive", ranks=4, nodes=4))
    assert across.calibration["p2p_nic_efficiency"] == pytest.approx(0.7, rel=0.02)
    assert across.calibration["p2p_latency_s"] == pytest.approx(4e-5, rel=0.02)


def test_what_is_fitted_predicts_what_was_measured():
    """Through the very names: constants that go back into the forms give the times again."""
    true = {"nic_latency_s": 9e-5, "nic_saturation_bytes": 1.5e8, "nic_efficiency": 0.55}
    forms = changed(current_forms(CLUSTER), true)
    found = fitted(made(forms, "all-gather", ranks=64, nodes=8))
    again = changed(current_forms(CLUSTER), found.calibration)
    sizes = np.array(SIZES, float)
    assert again.collective("all-gather", sizes, 64, 8) == pytest.approx(
        forms.collective("all-gather", sizes, 64, 8), rel=0.02
    )


def test_two_well_connected_nodes_say_only_what_cards_reach_at_least():
    forms = changed(current_forms(CLUSTER), {"nic_efficiency": 0.95})
    usual = replace(CLUSTER, calibration=(("nic_efficiency", 0.8),))
    found = fitted(made(forms, "all-reduce", ranks=16, nodes=2), cluster=usual)
    assert "nic_efficiency" not in found.calibration
    assert "links inside set the pace" in "\n".join(found.remarks)
    slow = replace(CLUSTER, calibration=(("nic_efficiency", 0.3),))
    bounded = fitted(made(forms, "all-reduce", ranks=16, nodes=2), cluster=slow)
    assert 0.3 < bounded.calibration["nic_efficiency"] <= 0.95


def test_a_cluster_file_carries_every_fitted_constant():
    assert set(WORDS) <= set(get_args(CalibratedName))
    true = {"nic_latency_s": 9e-5, "nic_saturation_bytes": 1.5e9, "nic_efficiency": 0.55}
    found = fitted(made(changed(current_forms(CLUSTER), true), "all-gather", ranks=64, nodes=8))
    assert found.calibration == pytest.approx(true, rel=0.05)
    load_cluster("pools: [{count: 8, device: h100-sxm-80gb}]\ncalibration: " + json.dumps(found.calibration))


def test_the_least_saturation_is_carried():
    """A plateau without its saturation would be another curve."""
    none = curve_of("all_gather") | {"all_gather.saturation_bytes": 1.0}
    found = fitted(made(changed(current_forms(CLUSTER), none), "all-gather"))
    assert found.calibration["all_gather.saturation_bytes"] < 1e6
    assert "volume at which" not in "".join(found.remarks)


def test_single_disturbed_sizes_do_not_move_a_fit():
    forms = changed(current_forms(CLUSTER), curve_of("all_reduce"))
    lines = made(forms, "all-reduce").splitlines()
    row = next(at for at, line in enumerate(lines) if line.split()[:1] == [str(2**20)])
    size, count, dtype, redop, root, *_ = lines[row].split()
    lines[row] = f"{size} {count} {dtype} {redop} {root} 4000 0.26 0.46 0 4000 0.26 0.46 0"
    assert fitted("\n".join(lines)).calibration == pytest.approx(curve_of("all_reduce"), rel=0.3)


def test_hosts_of_one_fast_domain_are_inside_it():
    """Eighteen hosts of four GB200 share their links."""
    cluster = load_cluster("gb200 x 72")
    forms = changed(current_forms(cluster), curve_of("all_reduce"))
    times = {size: float(forms.collective("all-reduce", size, 16, 16)) for size in SIZES}
    found = fitted(text(Run("all-reduce", times, ranks=16, nodes=4, one_process=False)), cluster=cluster)
    assert [fit.where for fit in found.fits] == ["inside a fast domain"]
    assert found.calibration["all_reduce.efficiency"] == pytest.approx(0.69, rel=0.05)


def test_sizes_that_show_no_latency_leave_it():
    found = read_nccl_tests(SAMPLES / "h100_one_and_two_nodes.txt").records
    fit = fit_collectives([r for r in found if r.nodes == 1], CLUSTER)
    assert "latency" not in "".join(fit.calibration)
    assert "latency of two ranks is not identified" in "\n".join(fit.remarks)
    assert fit.fits[0].error_mean < 0.02
    largest = max(r.busbw_bytes_per_s for r in found)
    assert largest < fit.calibration["all_reduce.efficiency"] * LINK < 1.1 * largest


def test_a_badly_connected_pair_of_nodes_is_seen():
    """Bus bandwidth b of 2 nodes of 8 needs b/15 of each card: here 10.4 GB/s of 50."""
    records = read_nccl_tests(SAMPLES / "h100_one_and_two_nodes.txt").records
    found = fit_collectives(records, CLUSTER)
    best = max(r.busbw_bytes_per_s for r in records if r.ranks == 16) / 15 / 50e9
    assert found.calibration["nic_efficiency"] == pytest.approx(best, rel=0.1)
    assert found.fits[-1].error_mean < 0.1
    assert 0.15 < found.calibration["nic_efficiency"] < 0.4


@pytest.mark.parametrize(
    ("name", "cluster", "error"),
    [
        ("a3_mega_two_nodes.txt", "h100-sxm-80gb x 16 @ gcp-a3-megagpu-8g", 0.2),
        ("h200_two_nodes_tagged.txt", "h200-sxm-141gb x 16", 0.12),
        ("mi355x_two_tests.txt", "mi355x x 8", 0.25),
    ],
)
def test_published_measurements_are_described(name, cluster, error):
    records = read_nccl_tests(SAMPLES / name).records
    found = fit_collectives(records, load_cluster(cluster))
    assert all(fit.error_mean < error for fit in found.fits)
    assert all(value.value > 0 for fit in found.fits for value in fit.values)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["calibration"] == found.calibration


def test_what_can_not_be_fitted_is_refused_with_reasons():
    table = text(Run("all-reduce", {2**20: 5e-5, 2**21: 6e-5}))
    with pytest.raises(InputError, match="2 sizes are too few"):
        fitted(table)
    wrong = text(Run("all-reduce", dict.fromkeys(SIZES, 1e-3), wrong="3"))
    with pytest.raises(InputError, match="left out"):
        fitted(wrong)
    two = "pools:\n  - {count: 8, device: h100-sxm-80gb}\n  - {count: 8, device: a100-sxm-80gb}\n"
    with pytest.raises(InputError, match="one pool"):
        fitted(table, cluster=load_cluster(two))


def test_another_device_than_the_clusters_is_remarked():
    found = fitted(made(current_forms(CLUSTER), "all-reduce"), cluster=load_cluster("a100-sxm-80gb x 8"))
    assert "measured on NVIDIA H100" in found.remarks[0]
