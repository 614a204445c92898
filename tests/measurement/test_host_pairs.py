"""Links between nodes from a sweep over pairs of hosts: what is slower is written, noise is not, a cluster reads it."""

import random

import pytest
from synthetic_results import hosts_of, pairs

from meshwright.cluster.load import load_cluster
from meshwright.ingestion.measured_cluster.cluster_file import cluster_from
from meshwright.ingestion.measured_cluster.node_links import node_links
from meshwright.measurement.measure_machine import MeasurementOptions, measure_locally

HOSTS = hosts_of(4, 8)
CLUSTER = "h100-sxm-80gb x 32"


def swept(seconds_of, hosts=HOSTS, cluster=CLUSTER, **how):
    findings = []
    return node_links(pairs(hosts, seconds_of, **how), load_cluster(cluster), findings), findings


def two_networks(names):
    return 0.001 if names in ({"host0", "host1"}, {"host2", "host3"}) else 0.004


def test_of_two_networks_the_border_is_slower_though_most_pairs_cross_it():
    links, findings = swept(two_networks)
    own, across = 1.0, 0.25
    assert links.shares == (
        (own, own, across, across),
        (own, own, across, across),
        (across, across, own, own),
        (across, across, own, own),
    )
    assert findings == ["4 of 6 pairs of hosts are slower, down to 25% of the rest"]


def test_a_cluster_file_carries_them_and_reads_the_same():
    results = pairs(HOSTS, two_networks)
    found = cluster_from(results, load_cluster(CLUSTER))
    assert found.cluster.links == node_links(results, load_cluster(CLUSTER), [])


def test_a_written_file_is_read_back(tmp_path):
    found = cluster_from(pairs(HOSTS, two_networks), load_cluster(CLUSTER))
    file = tmp_path / "cluster.yaml"
    file.write_text(found.text)
    assert load_cluster(str(file)).links.shares == found.cluster.links.shares


@pytest.mark.parametrize("seed", range(5))
def test_noise_makes_no_links(seed):
    rng = random.Random(seed)
    links, findings = swept(lambda names: 0.001 * rng.uniform(1, 1.09))
    assert links is None
    assert findings == ["no two hosts take 10% longer than the rest: links are alike"]


def test_pairs_that_are_missing_and_nodes_that_are_others_are_said():
    links, findings = swept(two_networks, most=2)
    assert links is None
    assert findings == ["4 of 6 pairs of hosts were measured: links need all of them"]
    links, findings = swept(two_networks, cluster="h100-sxm-80gb x 64")
    assert links is None
    assert findings == ["pairs of 4 hosts were measured, and the cluster file has other nodes"]
    assert swept(two_networks, hosts=hosts_of(2, 8), cluster="h100-sxm-80gb x 16") == (None, [])


@pytest.mark.slow
def test_a_sweep_of_three_hosts_covers_every_pair():
    hosts = ("a", "b", "c")
    results = measure_locally(
        MeasurementOptions(budget_s=0.3, operation_s=30.0, hosts=hosts), 3, lambda what, part: None
    )
    assert len(results.in_scope("host pair")) == 3
    found = cluster_from(results)
    assert any("pairs of hosts" in words or "no two hosts" in words for words in found.findings)
