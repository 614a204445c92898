"""Oversubscription of tiers from nccl-tests inside one group and over several."""

from dataclasses import replace

import numpy as np
import pytest
from nccl_output import Run, text

from meshwright.cluster.cluster import Tier
from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.load import load_cluster
from meshwright.ingestion.nccl_tests.constant_fit import fit_collectives
from meshwright.ingestion.nccl_tests.network_tiers import fit_network
from meshwright.ingestion.nccl_tests.predicted_times import (
    changed,
    congestion,
    current_forms,
    form_seconds,
    measurement_columns,
)
from meshwright.ingestion.nccl_tests.reader import parse_nccl_tests
from meshwright.verbs.measure import from_collective_tests

SIZES = tuple(2**power for power in range(16, 34))
PLAIN = load_cluster("h100-sxm-80gb x 256")
LEAF = Tier(name="leaf", devices=32, oversubscription=1)
POD = Tier(name="pod", devices=128, oversubscription=1)
HIDDEN = {"nic_efficiency": 0.62, "nic_latency_s": 6e-5}


def on(*tiers):
    return replace(PLAIN, tiers=tiers)


def made(cluster, name, ranks, noise=0.0, hidden=HIDDEN):
    """Output of a test on whole nodes that takes what the form says on a cluster with hidden constants."""
    empty = text(Run(name, dict.fromkeys(SIZES, 1e-3), ranks=ranks, nodes=ranks // 8))
    records = [record for record in parse_nccl_tests(empty).records if not record.in_place]
    seconds = form_seconds(
        changed(current_forms(cluster), hidden), measurement_columns(records, cluster.pool)
    )
    seconds *= np.exp(np.random.default_rng(ranks).normal(0, noise, len(seconds)))
    times = dict(zip(SIZES, seconds.tolist(), strict=True))
    return text(Run(name, times, ranks=ranks, nodes=ranks // 8))


def found(true, base, *runs, noise=0.0):
    """What is fitted on ``base`` to tests that were made on ``true``."""
    tests = {f"{name}_{n}.txt": parse_nccl_tests(made(true, name, n, noise)).records for name, n in runs}
    return fit_network(tests, base)


def slower(tier, oversubscription):
    return replace(tier, oversubscription=oversubscription)


EXCHANGES = (("all-to-all", 16), ("all-to-all", 32), ("all-to-all", 128))


@pytest.mark.parametrize("present", [1, 2, 9])
@pytest.mark.parametrize("hidden", [3, 8])
def test_a_hidden_oversubscription_is_found(hidden, present):
    network = found(on(slower(LEAF, hidden)), on(slower(LEAF, present)), *EXCHANGES)
    (tier,) = network.tiers
    assert tier.oversubscription == pytest.approx(hidden, rel=0.05)
    assert network.collectives.calibration["nic_efficiency"] == pytest.approx(0.62, rel=0.05)
    assert tier.source == "measured: all-to-all_128.txt, all-to-all_16.txt, all-to-all_32.txt"
    assert "all-to-all_128.txt" in network.remarks[0]


def test_noise_moves_it_little():
    (tier,) = found(on(slower(LEAF, 4)), on(LEAF), *EXCHANGES, noise=0.02).tiers
    assert tier.oversubscription == pytest.approx(4, rel=0.05)


def test_rings_show_an_oversubscription_that_a_few_cards_feel():
    runs = [(name, ranks) for name in ("all-reduce", "all-gather") for ranks in (32, 64)]
    (tier,) = found(on(slower(LEAF, 12)), on(LEAF), *runs).tiers
    assert tier.oversubscription == pytest.approx(12, rel=0.05)


def test_each_tier_is_told_by_collectives_that_span_it_and_no_larger_one():
    true, runs = on(slower(LEAF, 3), slower(POD, 6)), (*EXCHANGES, ("all-to-all", 256))
    network = found(true, on(LEAF, POD), *runs)
    assert [tier.oversubscription for tier in network.tiers] == pytest.approx([3, 6], rel=0.05)
    leaf, pod = found(true, on(slower(LEAF, 3), POD), *runs[:2], runs[3]).tiers
    assert (leaf, pod) == (slower(LEAF, 3), POD)


def test_what_collectives_lose_with_nodes_anyway_is_no_oversubscription():
    assert found(on(LEAF), on(LEAF), *EXCHANGES).tiers == (LEAF,)


def test_an_oversubscription_that_would_be_seen_is_bounded():
    network = found(on(LEAF), on(slower(LEAF, 6)), *EXCHANGES)
    assert 1 <= network.tiers[0].oversubscription < 2
    assert "at most" in network.remarks[0]


@pytest.mark.parametrize("runs", [EXCHANGES[:2], EXCHANGES[2:], (("all-reduce", 32), ("all-to-all", 128))])
def test_files_that_do_not_tell_it_leave_it(runs):
    network = found(on(slower(LEAF, 4)), on(slower(LEAF, 2)), *runs)
    assert network.tiers == (slower(LEAF, 2),)
    assert [remark for remark in network.remarks if "stays 2" in remark] == list(network.remarks)
    assert len(network.remarks) == 1


def test_without_tiers_only_constants_are_fitted():
    records = parse_nccl_tests(made(PLAIN, "all-to-all", 128)).records
    network = fit_network({"a.txt": records}, PLAIN)
    assert (network.tiers, network.remarks) == ((), ())
    assert network.collectives == fit_collectives(records, PLAIN)


def test_a_collective_takes_as_much_longer_as_in_a_plan():
    """Two leaves of 32: 32 devices send 32/56 of what leaves their node over uplinks of 32/7 cards."""
    records = parse_nccl_tests(made(PLAIN, "all-to-all", 64)).records
    sample = measurement_columns(records, PLAIN.pool)
    assert congestion((slower(LEAF, 7),), sample) == pytest.approx(7 * 32 / 56)
    assert congestion((slower(POD, 7),), sample) == pytest.approx(1)


def test_the_cluster_file_carries_it_and_says_that_it_was_measured(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text(dump_cluster(on(LEAF)))
    paths = []
    for name, ranks in EXCHANGES:
        paths.append(str(tmp_path / f"{name}-{ranks}.txt"))
        (tmp_path / paths[-1]).write_text(made(on(slower(LEAF, 5)), name, ranks))
    measured = from_collective_tests(paths, str(base))
    (tier,) = load_cluster(measured.text).tiers
    assert tier.oversubscription == pytest.approx(5, rel=0.05)
    assert tier.source.startswith("measured: all-to-all-128.txt")
    assert any("oversubscription of leaf" in finding for finding in measured.findings)
