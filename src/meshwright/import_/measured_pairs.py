"""How nodes reach each other, from a sweep over all pairs of hosts: every two send and receive with all their devices.

What a pair takes is held against what hosts take to those whom they reach best, the median over all hosts: with cards
of two networks most pairs may be slow ones, yet each host has some that are not. A pair that takes 10 % longer is
a slower link; less is noise, and would have orders of nodes searched that nobody can tell apart. So nothing is written
where all links are alike, where pairs are missing, or where hosts are not what a cluster file counts as nodes.
"""

from collections.abc import Sequence
from statistics import median

from meshwright.cluster.domains import node_count
from meshwright.cluster.graph import Cluster, Links
from meshwright.measure.results import LEAST_SLOWDOWN, CollectiveTime, Results

FEWEST_HOSTS = 3
"""One pair can not be told from the rest."""


def node_links(results: Results, cluster: Cluster, findings: list[str]) -> Links | None:
    """Shares of what the best links do, where some do less; the cluster's own links where nothing was found."""
    pairs = results.in_scope("host pair")
    hosts = list(dict.fromkeys(results.machine.hosts))
    wanted = len(hosts) * (len(hosts) - 1) // 2
    if len(hosts) < FEWEST_HOSTS:
        return cluster.links
    if len(pairs) < wanted:
        findings.append(f"{len(pairs)} of {wanted} pairs of hosts were measured: links need all of them")
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
        f"{len(slow) // 2} of {wanted} pairs of hosts are slower, down to {min(slow):.0%} of the rest"
    )
    kinds = cluster.links.kinds if cluster.links else ()
    return Links(shares=shares, kinds=kinds, source=results.origin)


def _seconds(pairs: Sequence[CollectiveTime], results: Results, hosts: Sequence[str]) -> list[list[float]]:
    """Seconds of every two hosts, both ways; 0 for a host with itself."""
    found = [[0.0] * len(hosts) for _ in hosts]
    ranks = {group.name: group.ranks for group in results.groups if group.scope == "host pair"}
    for pair in pairs:
        names = dict.fromkeys(results.machine.hosts[rank] for rank in ranks[pair.group])
        one, other = map(hosts.index, names)
        found[one][other] = found[other][one] = pair.seconds
    return found


def _share(seconds: float, usual: float) -> float:
    return 1.0 if seconds < usual * (1 + LEAST_SLOWDOWN) else float(f"{usual / seconds:.3g}")
