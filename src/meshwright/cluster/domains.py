"""Which devices of a pool are near each other: fast domains, and the nodes between which links are told apart."""

from dataclasses import replace

from meshwright.cluster.graph import Cluster, Pool


def usable_domain(pool: Pool) -> int:
    """Devices of one fast domain that a job uses.

    A job that does not fill its domains evenly is laid so that it does where it can: 256 devices use 64 of each
    NVL72, because 72 does not divide 256 and 64 (a whole number of hosts) does.
    """
    domain, host = pool.node.scaleup_domain, min(pool.node.devices, pool.node.scaleup_domain)
    if pool.count <= domain:
        return pool.count
    even = (size for size in range(domain, 0, -host) if pool.count % size == 0)
    return next(even, domain)


def node_devices(pool: Pool) -> int:
    """Devices of what counts as one node where links between nodes differ: a host, or the fast domain if larger."""
    return min(pool.count, max(pool.node.devices, usable_domain(pool)))


def node_count(pool: Pool) -> int | None:
    """Number of such nodes; None where the last one is not full."""
    nodes, rest = divmod(pool.count, node_devices(pool))
    return None if rest else nodes


def in_nodes_of(cluster: Cluster, devices: int) -> Cluster:
    """The same devices in nodes of so many, each of which is a fast domain."""
    node = replace(cluster.pool.node, devices=devices, scaleup_domain=devices)
    return replace(cluster, pools=(replace(cluster.pool, node=node),))
