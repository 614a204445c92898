"""A layer's launches hide behind its kernels, but for a device that launches and runs on one thread."""

from dataclasses import replace

import pytest

from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.load import load_cluster, parse_cluster
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.verbs.predict.predict_plan import predicted

HOST_S = 1e-5
PLAN = {
    "plan": 1,
    "model": "llama-3.1-8b",
    "workload": {"seq_len": 4096, "global_batch": 8},
    "layout": {"tp": 8},
    "stack": "meshwright",
}


def cluster(synchronous, host_s):
    usual = load_cluster("h100-sxm-80gb x 8")
    device = replace(usual.pool.device, synchronous=synchronous)
    pool = replace(usual.pool, device=device)
    return replace(usual, pools=(pool,), calibration=(("host_s_per_layer", host_s),))


def report(tmp_path, synchronous, host_s):
    path = tmp_path / "cluster.yaml"
    path.write_text(dump_cluster(cluster(synchronous, host_s)), encoding="utf-8")
    return predicted(resolve(ShortPlan.model_validate(PLAN | {"cluster": str(path)})))


def test_short_launches_hide_behind_kernels(tmp_path):
    assert report(tmp_path, False, HOST_S).breakdown_s["host"] == 0
    assert report(tmp_path, False, 1.0).breakdown_s["host"] > 0


def test_a_synchronous_device_launches_in_addition(tmp_path):
    """Forward, and 1.15 times as long backward, of 32 layers and 8 micro-batches."""
    without, with_launches = (report(tmp_path, True, seconds) for seconds in (1e-12, HOST_S))
    expected = 2.15 * HOST_S * 32 * 8
    assert with_launches.breakdown_s["host"] == pytest.approx(expected, rel=1e-3)
    assert with_launches.step_time_s - without.step_time_s == pytest.approx(expected, rel=1e-3)


def test_a_cluster_file_keeps_it():
    for synchronous in (True, False):
        known = cluster(synchronous, HOST_S)
        assert parse_cluster(dump_cluster(known)) == known
