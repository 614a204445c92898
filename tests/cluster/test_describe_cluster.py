import json

import pytest

from meshwright.cluster.describe import describe_cluster
from meshwright.cluster.load import load_cluster


def test_an_h100_cluster():
    text = describe_cluster(load_cluster("h100-sxm-80gb x 60"))
    assert text["devices"] == 60
    assert text["nodes"] == 8
    assert text["usd_per_hour"] == pytest.approx(60 * 4.24)
    assert text["devices_power_w"] == 60 * 700
    assert text["warnings"] == []
    pool = text["pools"][0]
    assert pool["peak_dense_tflops_per_device"]["bf16"] == pytest.approx(989)
    assert pool["memory_gib_per_device"] == pytest.approx(79.1)
    assert pool["node"]["nic_gbit_per_s_per_node"] == pytest.approx(3200)
    assert pool["node"]["nic_gbyte_per_s_per_device"] == pytest.approx(50)
    assert pool["node"]["scaleup_gbyte_per_s_per_device"] == pytest.approx(450)
    assert pool["usd_per_device_hour"]["source"].startswith("median of")
    assert text["failures_per_1000_node_days"]["value"] == 3.789


def test_every_number_that_has_a_unit_says_it():
    text = json.loads(json.dumps(describe_cluster(load_cluster("gb200 x 144"))))
    node = text["pools"][0]["node"]
    assert (node["devices_per_node"], node["scaleup_domain_devices"]) == (4, 72)
    units = (
        "_gbyte_per_s_per_device",
        "_gbyte_per_s_per_node",
        "_gbit_per_s_per_node",
        "_w_per_node",
        "_gib_per_node",
    )
    counts = ("devices_per_node", "scaleup_domain_devices", "nics_per_node")
    assert all(
        key.endswith((*units, *counts)) for key, value in node.items() if isinstance(value, float | int)
    )


def test_a_sparse_peak_is_doubted_and_a_future_device_too():
    sparse = load_cluster("pools:\n  - {count: 8, device: {like: h100, peak_tflops: {bf16: 1979}}}\n")
    assert "989" in describe_cluster(sparse)["warnings"][0]
    future = load_cluster("pools:\n  - {count: 8, device: {like: h100, id: x1, peak_tflops: {bf16: 9000}}}\n")
    assert "highest known" in describe_cluster(future)["warnings"][0]


def test_unknown_stays_unknown():
    text = describe_cluster(load_cluster("mi300x x 8"))
    assert text["failures_per_1000_node_days"] is None
    assert describe_cluster(load_cluster("h800 x 8"))["usd_per_hour"] is None
