"""Order the nodes so that near ones are neighbours, for any plan; searches over plans assume this order.

Groups of nodes are joined, those first that are least slow to each other in the mean (average linkage), the one with
the lower nodes in front; nodes of different units of a tier are farther apart by its oversubscription. Where all are
alike that is the order in which the cluster has them.
"""

import numpy as np

from meshwright.program.layouts.node_hops import Fabric

MOST_NODES = 256
"""Larger clusters keep the order in which they are listed: an order for them would take minutes."""


def near_together(fabric: Fabric) -> tuple[int, ...]:
    """Return the order, as nodes."""
    distance = np.maximum(1.0, fabric.slowness)
    for tier in fabric.tiers:
        unit = fabric.units(tier)
        distance = distance + tier.oversubscription * (unit[:, None] != unit[None])
    np.fill_diagonal(distance, np.inf)
    groups = [[node] for node in range(fabric.nodes)]
    while len(groups) > 1:
        one, other = sorted(divmod(int(distance.argmin()), len(groups)))
        first, second = len(groups[one]), len(groups[other])
        joined = (first * distance[one] + second * distance[other]) / (first + second)
        joined[one] = np.inf
        distance[one], distance[:, one] = joined, joined
        distance = np.delete(np.delete(distance, other, 0), other, 1)
        groups[one] += groups.pop(other)
    return tuple(groups[0])
