import pytest

from meshwright.cluster.catalog import (
    PRECISIONS,
    device,
    device_id,
    device_ids,
    named_node,
    node_device,
    node_names,
    nodes_of,
    usual_node,
)
from meshwright.cluster.cluster import Cluster, Pool
from meshwright.cluster.data_tables import read_table
from meshwright.cluster.plausibility import implausible_figures
from meshwright.errors import InputError
from meshwright.units import GIB, GIGA, TERA

TABLES = ("accelerators", "nodes", "prices", "reliability")


def test_the_catalogue_has_the_devices_that_data_files_speak_of():
    spoken = {
        "A100-40GB": "a100-sxm-40gb",
        "A100-SXM4-40GB": "a100-sxm-40gb",
        "A100-80GB": "a100-sxm-80gb",
        "A100 (Ampere)": "a100-sxm-80gb",
        "H100": "h100-sxm-80gb",
        "H100-80GB": "h100-sxm-80gb",
        "H100-96GB-HBM2e-500W": "h100-sxm-96gb-500w",
        "H200": "h200-sxm-141gb",
        "H800": "h800-sxm-80gb",
        "MI250X (GCD)": "mi250x",
        "GB300": "gb300",
    }
    assert {name: device_id(name) for name in spoken} == spoken
    assert len(device_ids()) >= 25


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_source_and_confidence(table):
    for row in read_table(table):
        assert row["source"], row
        assert row["confidence"] in {"high", "medium", "low", "unchecked"}, row
        assert None not in row, "a row has more cells than the header"


def test_names_are_unique_and_refer_to_devices():
    assert len(set(device_ids())) == len(device_ids())
    assert len(set(node_names())) == len(node_names())
    assert {row["device"] for row in read_table("nodes")} <= set(device_ids())
    assert {row["id"] for row in read_table("prices")} <= set(device_ids())
    assert {name for row in read_table("reliability") for name in row["usual_for"].split()} <= set(
        device_ids()
    )


def test_a_device_has_at_most_one_usual_node():
    usual = [row["device"] for row in read_table("nodes") if row["usual"]]
    assert len(usual) == len(set(usual))


def test_h100_figures_are_the_datasheets():
    h100 = device("h100-sxm-80gb")
    assert h100.peak_flops["bf16"] == 989 * TERA
    assert h100.peak_flops["fp8"] == 1979 * TERA
    assert h100.memory_bytes_per_s == 3350 * GIGA
    assert h100.scaleup_bytes_per_s == 450 * GIGA
    assert h100.power_w == 700
    assert h100.memory_bytes / GIB == pytest.approx(79.1, abs=0.01)


def test_a_gcd_is_half_a_module():
    gcd = device("mi250x")
    assert gcd.peak_flops["bf16"] == 383 / 2 * TERA
    assert gcd.memory_bytes / GIB == pytest.approx(64, rel=0.01)
    assert gcd.memory_bytes_per_s == 3277 / 2 * GIGA


def test_the_power_limited_h100_differs_in_memory_and_power_only():
    small, large = device("h100-sxm-96gb-500w"), device("h100-sxm-80gb")
    assert small.peak_flops == large.peak_flops
    assert (small.power_w, small.memory_bytes_per_s) == (500, 2400 * GIGA)


def test_marketed_memory_is_gib_less_a_percent_except_for_the_b300_family():
    for row in read_table("accelerators"):
        if row["vendor"] in ("NVIDIA", "AMD") and row["memory_type"].startswith("HBM"):
            ratio = float(row["memory_gib"]) / (0.99 * float(row["memory_marketed_gb"]))
            if row["id"] in ("b300", "gb300"):
                assert 0.93 < ratio < 0.98, row["id"]
            else:
                assert 0.98 < ratio < 1.02, row["id"]


@pytest.mark.parametrize("name", device_ids())
def test_every_device_makes_a_believable_cluster(name):
    kind, node = device(name), usual_node(name)
    pool = Pool(name=name, device=kind, node=node, count=8)
    assert implausible_figures(Cluster(name=name, pools=(pool,))) == ()
    assert set(kind.peak_flops) <= set(PRECISIONS)
    assert set(kind.peak_flops) & {"bf16", "fp16"}
    assert node.scaleup_domain % node.devices == 0 or node.devices % node.scaleup_domain == 0
    assert node.source


@pytest.mark.parametrize(
    ("name", "devices", "domain", "nic_gbit", "scaleup_gbyte"),
    [
        ("a100-sxm-40gb", 8, 8, 1600, 300),
        ("a100-sxm-80gb", 8, 8, 1600, 300),
        ("h100-sxm-80gb", 8, 8, 3200, 450),
        ("h200-sxm-141gb", 8, 8, 3200, 450),
        ("h800-sxm-80gb", 8, 8, 3200, 200),
        ("b200", 8, 8, 3200, 900),
        ("gb200", 4, 72, 1600, 900),
        ("gb300", 4, 72, 3200, 900),
        ("mi300x", 8, 8, 3200, 448),
        ("mi250x", 8, 8, 800, 175),
    ],
)
def test_usual_nodes(name, devices, domain, nic_gbit, scaleup_gbyte):
    node = usual_node(name)
    assert (node.devices, node.scaleup_domain) == (devices, domain)
    assert node.nic_bytes_per_s * 8 / GIGA == nic_gbit
    assert node.scaleup_bytes_per_s == scaleup_gbyte * GIGA


def test_a_node_reaches_its_host_over_the_link_of_its_devices():
    lanes = {"3.0x16": 15.754, "4.0x16": 31.508, "5.0x16": 63.015, "6.0x16": 121.0, "C2C 450 uni": 450.0}
    links = {row["id"]: row["pcie"] for row in read_table("accelerators")}
    known = 0
    for name in node_names():
        rate = named_node(name).host_bytes_per_s
        if rate is not None and name != "frontier":  # measured there
            known += 1
            assert any(
                links[node_device(name)].startswith(link) for link, of in lanes.items() if of * GIGA == rate
            )
    assert known > 40


def test_the_memory_of_a_host_is_known_or_it_is_not():
    assert named_node("dgx-h100").host_memory_bytes == 2048 * GIB
    assert named_node("aws-p4d.24xlarge").host_memory_bytes == 1152 * GIB
    assert named_node("dgx-1-v100-32gb").host_memory_bytes == 512 * GIB
    assert named_node("dgx-2").host_memory_bytes == 1536 * GIB
    assert usual_node("rtx-4090").host_memory_bytes is None


@pytest.mark.parametrize("name", node_names())
def test_named_nodes_say_how_fast_their_hosts_memory_is_and_who_says_so(name):
    node = named_node(name)
    assert node.host_memory_bytes
    assert node.host_memory_bytes_per_s
    assert node.host_memory_source


def test_a_node_that_nobody_described_says_that_it_is_a_guess():
    assert usual_node("rtx-4090").source.startswith("guess")


def test_named_nodes_know_their_devices():
    assert named_node("aws-p5.48xlarge").nic_count == 32
    assert node_device("aws-p5.48xlarge") == "h100-sxm-80gb"
    assert "dgx-h100" in nodes_of("h100-sxm-80gb")


def test_unknown_names_come_back_with_near_ones():
    with pytest.raises(InputError, match="h100-sxm-80gb"):
        device("h100-sxm-80")
    with pytest.raises(InputError, match="dgx-h100"):
        named_node("dgx-h10")
