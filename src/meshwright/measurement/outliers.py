"""Find devices, hosts and links that are slower than the others of their kind.

Everything is compared with the median of its kind: a device with the others at the same kernels, a pair of hosts with
the other pairs at the same message, a pair of devices with the same pair on other hosts (from three hosts on, because a
board's links may differ by design). An outlier is slower than the median by more than 10 % *and* by more
than k robust standard deviations, k = max(3, 1 + √(2·ln n)) for n things: the largest of n normal numbers is about
√(2·ln n) deviations out, so that noise alone gives no outlier, however many things there are. The deviation is 1.4826
times the median absolute deviation, and at least the spread of the repeats if that was measured.

A host is named instead of its links if even its best pair is slower than the others' best; a host with one measured
pair cannot be distinguished from its partner, so then the link is named. Slowness of half of all things or more is not
detected.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log, sqrt
from statistics import median
from typing import Any, Literal

from meshwright.measurement.results import LEAST_SLOWDOWN, CollectiveTime, KernelTime, Results

LEAST_DEVIATIONS = 3.0
NORMAL = 1.4826
"""Ratio of a normal distribution's standard deviation to its median absolute deviation."""
HOSTS_TO_COMPARE = 3
COMPARED_KERNELS = ("matmul", "attention", "pass")


@dataclass(frozen=True, slots=True)
class Outlier:
    """Something slow: a ``device``, a ``host`` or a ``link``; ``slower`` is 0.25 for 25 % more time than the median."""

    what: Literal["device", "host", "link"]
    name: str
    ranks: tuple[int, ...]
    quantity: str
    slower: float

    def __str__(self) -> str:
        return f"{self.what} {self.name}: {self.quantity} takes {self.slower:.0%} longer than the median"

    def to_json(self) -> dict[str, Any]:
        """Return the outlier as JSON-ready data."""
        return asdict(self)


def find_outliers(results: Results) -> tuple[Outlier, ...]:
    """Return every slow device, host and link, the slowest first."""
    found = [*_odd_devices(results), *_odd_hosts_inside(results)]
    found += [*_odd_device_pairs(results), *_odd_host_pairs(results)]
    return tuple(sorted(found, key=lambda odd: -odd.slower))


def worst_host_pair(results: Results) -> tuple[CollectiveTime, float] | None:
    """Return the slowest pair of hosts and its extra time over the median pair; None without pairs."""
    pairs = results.in_scope("host pair")
    if not pairs:
        return None
    worst = max(pairs, key=lambda pair: pair.seconds)
    return worst, worst.seconds / median(pair.seconds for pair in pairs) - 1


def robust_deviation(values: Sequence[float]) -> float:
    """Return a standard deviation that up to half of the values cannot spoil."""
    middle = median(values)
    return NORMAL * median(abs(value - middle) for value in values)


def slow_indices(ratios: Sequence[float], deviation: float = 0.0) -> list[int]:
    """Return the indices of outliers among times over their median; ``deviation`` is the least assumed noise."""
    if len(ratios) < 2:
        return []
    sigma = max(robust_deviation(ratios), deviation)
    needed = max(LEAST_DEVIATIONS, 1 + sqrt(2 * log(len(ratios)))) * sigma
    return [i for i, ratio in enumerate(ratios) if ratio - 1 > max(LEAST_SLOWDOWN, needed)]


def _odd_devices(results: Results) -> list[Outlier]:
    """Return the devices whose median ratio over the kernels of a kind is high."""
    found = []
    for kind in COMPARED_KERNELS:
        kernels = [kernel for kernel in results.kernels if kernel.kind.startswith(kind)]
        if not kernels:
            continue
        tables = [_over_median(kernel.seconds) for kernel in kernels]
        ratios = [median(column) for column in zip(*tables, strict=True)]
        noise = median(map(_relative_spread, kernels))
        found += [_odd_device(results, rank, kind, ratios[rank]) for rank in slow_indices(ratios, noise)]
    return found


def _relative_spread(kernel: KernelTime) -> float:
    return median(spread / s for spread, s in zip(kernel.spread_s, kernel.seconds, strict=True))


def _odd_device(results: Results, rank: int, quantity: str, ratio: float) -> Outlier:
    host = results.machine.hosts[rank]
    local = results.machine.hosts[:rank].count(host)
    return Outlier("device", f"{local} of {host} (rank {rank})", (rank,), quantity, ratio - 1)


def _odd_hosts_inside(results: Results) -> list[Outlier]:
    """Return the hosts whose largest all-reduce is slower than the others'."""
    times = [time for time in results.in_scope("node") if time.kind == "all-reduce"]
    largest = max((time.bytes for time in times), default=0)
    return _odd_groups(results, [time for time in times if time.bytes == largest], "host")


def _odd_device_pairs(results: Results) -> list[Outlier]:
    times = results.in_scope("device pair")
    if results.machine.nodes < HOSTS_TO_COMPARE:
        return _odd_groups(results, times, "link")
    places = _places(results)
    alike: dict[tuple[int, ...], list[CollectiveTime]] = {}
    for time in times:
        ranks = results.group_of[time.group].ranks
        alike.setdefault(tuple(places[rank] for rank in ranks), []).append(time)
    return [odd for same in alike.values() for odd in _odd_groups(results, same, "link")]


def _odd_host_pairs(results: Results) -> list[Outlier]:
    """Return the hosts whose best pair is slow, then slow links between the others."""
    times = results.in_scope("host pair")
    of_host: dict[str, list[float]] = {}
    for time in times:
        for host in _hosts(results, time):
            of_host.setdefault(host, []).append(time.seconds)
    names = [host for host, seconds in of_host.items() if len(seconds) > 1]
    ratios = _over_median([min(of_host[host]) for host in names])
    bad = {names[index]: ratios[index] for index in slow_indices(ratios)}
    hosts = [
        Outlier("host", host, _ranks_of(results, host), "send-recv with any other host", ratio - 1)
        for host, ratio in bad.items()
    ]
    others = [time for time in times if not _hosts(results, time) & bad.keys()]
    return hosts + _odd_groups(results, others, "link")


def _odd_groups(
    results: Results, times: Sequence[CollectiveTime], what: Literal["host", "link"]
) -> list[Outlier]:
    ratios = _over_median([time.seconds for time in times])
    return [_odd_group(results, times[index], ratios[index], what) for index in slow_indices(ratios)]


def _odd_group(
    results: Results, time: CollectiveTime, ratio: float, what: Literal["host", "link"]
) -> Outlier:
    ranks = results.group_of[time.group].ranks
    name = results.machine.hosts[ranks[0]] if what == "host" else time.group
    return Outlier(what, name, ranks, time.kind, ratio - 1)


def _over_median(seconds: Sequence[float]) -> list[float]:
    middle = median(seconds) if seconds else 1.0
    return [time / middle for time in seconds]


def _hosts(results: Results, time: CollectiveTime) -> set[str]:
    return {results.machine.hosts[rank] for rank in results.group_of[time.group].ranks}


def _ranks_of(results: Results, host: str) -> tuple[int, ...]:
    return tuple(rank for rank, name in enumerate(results.machine.hosts) if name == host)


def _places(results: Results) -> list[int]:
    """Return the local number of every rank on its host."""
    seen: dict[str, int] = {}
    places = []
    for host in results.machine.hosts:
        places.append(seen.get(host, 0))
        seen[host] = places[-1] + 1
    return places
