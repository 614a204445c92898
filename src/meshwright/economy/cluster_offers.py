"""Clusters on offer: named ones, all useful counts up to a maximum, and rows of price lists.

``h100-sxm-80gb x <=256`` is every number of whole nodes up to 256 devices, and below one node every number that divides
it: others leave devices of a node idle, at odds with how nodes are let.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from meshwright.cluster.catalog import device, named_node, usual_node
from meshwright.cluster.cluster import Cluster, Sourced
from meshwright.cluster.load import load_cluster
from meshwright.cluster.price_list import read_price_list
from meshwright.cluster.shorthand import SOURCE, device_count, is_device_first
from meshwright.errors import InputError, Problem, attempted

AT_MOST = re.compile(r"(?P<device>\S.*?)\s*[x×]\s*(?:<=|≤)\s*(?P<most>[^@]*?)\s*(?P<node>@.*)?")
MOST_OFFERS = 4096
PRICE_LIST = ".csv"


@dataclass(frozen=True, slots=True)
class Offer:
    """``on`` is what a plan file calls the cluster."""

    on: str
    cluster: Cluster


def offers(texts: Iterable[str]) -> tuple[Offer, ...]:
    """All clusters that are named, each once. Raises InputError with every problem."""
    problems: list[Problem] = []
    found: dict[tuple[str, Sourced | None], Offer] = {}
    for text in texts:
        for offer in attempted(lambda text=text: tuple(_named(text)), problems) or ():  # type: ignore[misc]
            found.setdefault((offer.on, offer.cluster.pools[0].usd_per_device_hour), offer)
    if len(found) > MOST_OFFERS:
        rule = f"{len(found)} clusters are more than {MOST_OFFERS}"
        problems.append(Problem("cluster", None, rule, "a smaller most, or fewer of them"))
    if not found and not problems:
        problems.append(Problem("cluster", None, "none is named", "--on 'h100-sxm-80gb x 64'"))
    if problems:
        raise InputError(problems)
    return tuple(found.values())


def _named(text: str) -> Iterator[Offer]:
    if Path(text).suffix == PRICE_LIST:
        yield from _listed(Path(text))
        return
    match = AT_MOST.fullmatch(text.strip())
    if match is None:
        cluster = load_cluster(text)
        written_by_us = cluster.source == SOURCE and not is_device_first(text)
        yield Offer(cluster.name if written_by_us else text, cluster)
        return
    problems: list[Problem] = []
    node = attempted(lambda: _node_devices(match["device"], match["node"]), problems)
    most = attempted(lambda: device_count(match["most"]), problems)
    if problems or node is None or most is None:
        raise InputError(problems)
    for count in counts(most, node):
        name = f"{match['device']} x {count}" + (f" {match['node']}" if match["node"] else "")
        yield Offer(name, load_cluster(name))


def _node_devices(name: str, node: str | None) -> int:
    kind = device(name, "cluster.device")
    found = usual_node(kind.id) if node is None else named_node(node.removeprefix("@"), "cluster.node")
    return found.devices


def counts(most: int, node: int) -> tuple[int, ...]:
    """Numbers of devices up to ``most``: divisors of a node, then whole nodes; those up to less are among them."""
    parts = (count for count in range(1, node) if node % count == 0 and count <= most)
    return (*parts, *range(node, most + 1, node))


def _listed(path: Path) -> Iterator[Offer]:
    problems: list[Problem] = []
    for row in read_price_list(path):
        if Path(row.on).suffix == PRICE_LIST:
            problems.append(
                Problem("cluster", row.on, f"{path} is a price list and names another one", "a cluster")
            )
            continue
        price = Sourced(row.usd_per_device_hour, str(path))
        for offer in attempted(lambda row=row: tuple(_named(row.on)), problems) or ():  # type: ignore[misc]
            pools = tuple(replace(pool, usd_per_device_hour=price) for pool in offer.cluster.pools)
            yield Offer(offer.on, replace(offer.cluster, pools=pools))
    if problems:
        raise InputError(problems)
