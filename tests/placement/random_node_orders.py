"""Random questions of a few nodes: links, tiers, groups and what slow ones cost."""

import numpy as np

from meshwright.cluster.cluster import Tier
from meshwright.placement.node_order.problem import Task
from meshwright.program.layouts.node_hops import Fabric, Groups

PER_NODE = 2


def random_rates(rng, nodes):
    """Of groups of equal cards, of a few different rates, or all different."""
    form = rng.integers(3)
    if form == 0:
        kind = rng.integers(2, size=nodes)
        rates = np.where(kind[:, None] == kind[None], 1.0, 0.05)
    elif form == 1:
        rates = rng.choice([0.1, 0.3, 1.0], (nodes, nodes))
    else:
        rates = rng.uniform(0.05, 1.0, (nodes, nodes))
    return np.minimum(rates, rates.T)


def random_fabric(rng, nodes):
    tiers = ()
    if rng.random() < 0.3:
        tiers = (
            Tier(
                name="pod", devices=PER_NODE * max(2, nodes // 2), oversubscription=float(rng.uniform(1, 9))
            ),
        )
    return Fabric(1 / random_rates(rng, nodes), PER_NODE, tiers)


def random_groups(rng, nodes):
    """A grid of (inside a node, data parallel, pipeline) with groups over some of its axes."""
    ranks = nodes * PER_NODE
    pipeline = int(rng.choice([p for p in range(1, nodes + 1) if nodes % p == 0]))
    replicas = ranks // PER_NODE // pipeline
    rings = ((replicas, PER_NODE),)
    stages = ((pipeline, ranks // pipeline),)
    made = [
        Groups(rings, ranks, "ring", 1),
        Groups(rings, ranks, "all", 1),
        Groups(((PER_NODE, 1), *rings), ranks, "ring", PER_NODE),
        Groups(stages, ranks, rng.choice(["chain", "loop"]), 1),
        Groups(stages, ranks, "ring", 1, "ends"),
    ]
    known = [groups for groups in made if len(groups.hops(PER_NODE))]
    count = int(rng.integers(1, len(known) + 1))
    return tuple(known[i] for i in rng.permutation(len(known))[:count])


def random_price(rng, kinds):
    """Seconds that never fall: sums, of which some are hidden behind others."""
    weights, hidden, beside = rng.uniform(0, 1, kinds), rng.uniform(0, 3, kinds), rng.uniform(1, 9)

    def step_s(slowdowns):
        exposed = np.maximum(0.0, weights * slowdowns - hidden)
        return float(3 + exposed.sum() + max(beside, float((weights * slowdowns).max())))

    return step_s


def random_task(seed, sizes=(2, 3, 4, 5, 6)):
    rng = np.random.default_rng(seed)
    nodes = int(rng.choice(sizes))
    groups = random_groups(rng, nodes)
    return Task(random_fabric(rng, nodes), groups, random_price(rng, len(groups)))
