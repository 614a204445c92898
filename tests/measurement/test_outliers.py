"""What is hidden in a table is found and named; noise alone names nobody."""

import numpy as np
import pytest
from synthetic_results import collective, hosts_of, inside, pairs, product, results

from meshwright.measurement.outliers import find_outliers, robust_deviation, slow_indices, worst_host_pair

NOISE = 0.02


def noisy(seed, size=None, noise=NOISE):
    return np.random.default_rng(seed).lognormal(0, noise, size)


@pytest.mark.parametrize("noise", [0.0, NOISE, 0.06])
@pytest.mark.parametrize("devices", [2, 8, 64, 1024])
def test_noise_names_no_device(devices, noise):
    for seed in range(5):
        kernels = [product(noisy((seed, k), devices, noise).tolist()) for k in range(4)]
        assert find_outliers(results(hosts_of(-(-devices // 8), 8)[:devices], kernels)) == ()


@pytest.mark.parametrize("nodes", [3, 4, 9, 16])
def test_noise_names_no_link(nodes):
    for seed in range(20):
        random = np.random.default_rng(seed)
        found = find_outliers(pairs(hosts_of(nodes, 2), lambda names, r=random: float(r.lognormal(0, NOISE))))
        assert found == ()


@pytest.mark.parametrize("nodes", [4, 9, 16])
def test_a_slow_link_between_hosts_is_named(nodes):
    for seed in range(10):
        random = np.random.default_rng(seed)
        bad = frozenset({"host1", f"host{nodes - 1}"})
        (odd,) = find_outliers(
            pairs(
                hosts_of(nodes, 2),
                lambda names, r=random, b=bad: float(r.lognormal(0, NOISE)) * (1.5 if names == b else 1.0),
            )
        )
        assert odd.what == "link"
        assert all(host in odd.name for host in bad)
        assert odd.slower == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize(("nodes", "most"), [(3, 1000), (4, 1000), (9, 1000), (4, 2), (9, 2)])
def test_a_slow_host_is_named_and_not_its_links(nodes, most):
    found = find_outliers(
        pairs(hosts_of(nodes, 4), lambda names: 1.3 if "host2" in names else 1.0, most=most)
    )
    assert [(odd.what, odd.name) for odd in found] == [("host", "host2")]
    assert found[0].ranks == (8, 9, 10, 11)
    assert found[0].slower == pytest.approx(0.3)


def test_of_two_hosts_that_met_once_the_link_is_named():
    found = find_outliers(pairs(hosts_of(6, 1), lambda names: 2.0 if "host2" in names else 1.0, most=1))
    assert [odd.what for odd in found] == ["link"]
    assert "host2" in found[0].name


@pytest.mark.parametrize("noise", [0.0, NOISE])
def test_a_slow_device_is_named_with_its_host(noise):
    for seed in range(10):
        seconds = noisy(seed, (5, 32), noise)
        seconds[:, 13] *= 1.25
        found = find_outliers(results(hosts_of(4, 8), [product(row.tolist()) for row in seconds]))
        (odd,) = found
        assert (odd.what, odd.ranks, odd.quantity) == ("device", (13,), "matmul")
        assert "5 of host1" in odd.name
        assert odd.slower == pytest.approx(0.25, abs=0.08)
        assert "host1" in str(odd)
        assert "longer" in str(odd)


def test_a_device_that_is_slow_at_one_shape_only_is_not_odd():
    seconds = np.ones((5, 8))
    seconds[0, 3] = 3.0
    assert find_outliers(results(hosts_of(1, 8), [product(row.tolist()) for row in seconds])) == ()


def test_repeats_that_scatter_more_than_devices_differ_excuse_a_device():
    slow = [1.0] * 7 + [1.3]
    assert find_outliers(results(hosts_of(1, 8), [product(slow)]))
    assert not find_outliers(results(hosts_of(1, 8), [product(slow, spread=0.2)]))


def test_a_host_that_is_slow_inside_is_named():
    hosts = hosts_of(5, 4)
    times = [
        collective(group, 2.0 if group.name.endswith("3") else 1.0, "all-reduce", size)
        for group in inside(hosts)
        for size in (4096, 2**26)
    ]
    (odd,) = find_outliers(results(hosts, groups=inside(hosts), collectives=times))
    assert (odd.what, odd.name, odd.slower) == ("host", "host3", pytest.approx(1.0))


def test_links_of_a_board_may_differ_by_design_but_not_from_host_to_host():
    """Devices 0 and 1 share a bridge, all others do not, on every host; on one host the bridge is broken."""
    hosts = hosts_of(4, 4)

    def design(name):
        return 1.0 if name.startswith("devices 0 and 1 ") else 3.0

    assert find_outliers(pairs(hosts, design, "device pair")) == ()
    broken = "devices 0 and 1 of host2"
    (odd,) = find_outliers(pairs(hosts, lambda name: 3.0 if name == broken else design(name), "device pair"))
    assert (odd.what, odd.name) == ("link", broken)


def test_the_worst_pair_is_there_even_when_nothing_is_odd():
    found = pairs(hosts_of(4, 1), lambda names: 1.05 if names == {"host0", "host3"} else 1.0)
    worst, slower = worst_host_pair(found)
    assert find_outliers(found) == ()
    assert {"host0", "host3"} == set(worst.group.split(" and "))
    assert slower == pytest.approx(0.05)
    assert worst_host_pair(results(hosts_of(1, 1))) is None


def test_the_robust_deviation_is_that_of_normal_numbers_and_ignores_a_minority():
    values = np.random.default_rng(1).normal(1, 0.1, 4001)
    assert robust_deviation(values.tolist()) == pytest.approx(0.1, rel=0.05)
    values[:800] = 99
    assert robust_deviation(values.tolist()) < 0.2


def test_a_small_excess_is_no_oddity():
    assert slow_indices([1.0] * 20 + [1.09]) == []
    assert slow_indices([1.0] * 20 + [1.11]) == [20]
    assert slow_indices([5.0]) == []


def test_the_slowest_comes_first():
    def seconds(names):
        return 2.0 if "host0" in names else {frozenset({"host2", "host3"}): 3.0}.get(names, 1.0)

    found = find_outliers(pairs(hosts_of(6, 1), seconds))
    assert [(odd.what, odd.slower) for odd in found] == [("link", 2.0), ("host", 1.0)]
