"""Rate the links between nodes, from a sweep over all pairs of hosts that exchange data with all their devices.

A pair's time is compared with the time of each host's best pair, the median over all hosts: if the cards belong to two
networks most pairs may be slow, yet each host has some fast ones. A pair that takes 10 % longer is a slower link; less
is noise, and would start a search over node orders that cannot be distinguished. So nothing is written if all links are
alike, if pairs are missing, or if hosts are not nodes of the cluster file.
"""

from collections.abc import Sequence
from statistics import median

from meshwright.cluster.cluster import Cluster, Links
from meshwright.cluster.fast_domains import node_count
from meshwright.measurement.results import LEAST_SLOWDOWN, CollectiveTime, Results

FEWEST_HOSTS = 3
"""Fewest hosts: one pair has nothing to be compared with."""


def node_links(results: Results, cluster: Cluster, findings: list[str]) -> Links | None:
    """Return the links as fractions of the best ones, if some are slower; the cluster's own links if none are."""
    pairs = results.in_scope("host pair")
    hosts = list(dict.fromkeys(results.machine.hosts))
    expected = len(hosts) * (len(hosts) - 1) // 2
    if len(hosts) < FEWEST_HOSTS:
        return cluster.links
    if len(pairs) < expected:
        findings.append(f"{len(pairs)} of {expected} pairs of hosts were measured: links need all of them")
        return cluster.links
    if node_count(cluster.pool) != len(hosts):
        findings.append(f"pairs of {len(hosts)} hosts were measured, and the cluster file has other nodes")
        return cluster.links
    seconds = _seconds(pairs, results, hosts)
    usual = median(min(of for of in row if of) for row in seconds)
    shares = tuple(tuple(_share(of, usual) for of in row) for row in seconds)
    slow = [share for row in shares for share in row if share < 1]
    if not slow:
        findings.append(f"no two hosts take {LEAST_SLOWDOWN:.0%} longer than the rest: links are alike")
        return cluster.links
    findings.append(
        f"{len(slow) // 2} of {expected} pairs of hosts are slower, down to {min(slow):.0%} of the rest"
    )
    kinds = cluster.links.kinds if cluster.links else ()
    return Links(shares=shares, kinds=kinds, source=results.origin)


def _seconds(pairs: Sequence[CollectiveTime], results: Results, hosts: Sequence[str]) -> list[list[float]]:
    """Return the seconds between every two hosts, both ways; 0 for a host with itself."""
    found = [[0.0] * len(hosts) for _ in hosts]
    ranks = {group.name: group.ranks for group in results.groups if group.scope == "host pair"}
    for pair in pairs:
        names = dict.fromkeys(results.machine.hosts[rank] for rank in ranks[pair.group])
        one, other = map(hosts.index, names)
        found[one][other] = found[other][one] = pair.seconds
    return found


def _share(seconds: float, usual: float) -> float:
    return 1.0 if seconds < usual * (1 + LEAST_SLOWDOWN) else float(f"{usual / seconds:.3g}")
