"""Nodes and devices of each replica: pools of large replicas first, each on the first nodes that have room.

A replica lies on neighbouring devices of one node, or on whole nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.cluster.cluster import Pool as DevicePool
from meshwright.plans.serving.serving_plan import Pool, ServingPlan


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """The first node of a replica, how many it takes, and its first device on each of them."""

    node: int
    nodes: int
    first_device: int


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the replicas of each pool; ``unplaced`` pools have a replica without one."""

    node_devices: int
    replicas: Mapping[str, tuple[ReplicaPlace, ...]]
    unplaced: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """Nodes that have a replica."""
        return max(
            (place.node + place.nodes for places in self.replicas.values() for place in places), default=0
        )


def place_replicas(plan: ServingPlan, devices: DevicePool) -> Places:
    """Place the replicas of all pools on nodes of equal size."""
    size = min(devices.count, devices.node.devices)
    used = [0] * (devices.count // size)
    found: dict[str, tuple[ReplicaPlace, ...]] = {}
    unplaced: list[str] = []
    for pool in sorted(plan.pools.values(), key=lambda pool: -pool.devices_of_replica):
        places = [_place(pool, size, used) for _ in range(pool.replicas)]
        found[pool.name] = tuple(place for place in places if place is not None)
        if None in places:
            unplaced.append(pool.name)
    return Places(size, {name: found[name] for name in plan.pools}, tuple(unplaced))


def _place(pool: Pool, size: int, used: list[int]) -> ReplicaPlace | None:
    """Take the devices of one replica; ``used`` are those of each node that others have."""
    wanted = pool.devices_of_replica
    if wanted <= size:
        for node, taken in enumerate(used):
            if taken + wanted <= size:
                used[node] += wanted
                return ReplicaPlace(node, 1, taken)
        return None
    count, rest = divmod(wanted, size)
    if rest:
        return None
    for node in range(len(used) - count + 1):
        if not any(used[node : node + count]):
            used[node : node + count] = [size] * count
            return ReplicaPlace(node, count, 0)
    return None
