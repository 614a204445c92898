"""Group the devices of a pool into fast domains, and into the nodes whose links may differ."""

from dataclasses import replace

from meshwright.cluster.cluster import Cluster, Pool


def usable_domain(pool: Pool) -> int:
    """Return the devices of one fast domain that a job uses.

    A job that does not fill its domains evenly is placed so that it does if it can: 256 devices use 64 of each
    NVL72, because 72 does not divide 256 and 64 (a whole number of hosts) does.
    """
    domain, host = pool.node.scaleup_domain, min(pool.node.devices, pool.node.scaleup_domain)
    if pool.count <= domain:
        return pool.count
    even = (size for size in range(domain, 0, -host) if pool.count % size == 0)
    return next(even, domain)


def node_devices(pool: Pool) -> int:
    """Return the devices of one node where links between nodes differ: a host, or the fast domain if larger."""
    return min(pool.count, max(pool.node.devices, usable_domain(pool)))


def node_count(pool: Pool) -> int | None:
    """Return the number of such nodes; None if the last one is not full."""
    nodes, rest = divmod(pool.count, node_devices(pool))
    return None if rest else nodes


def in_nodes_of(cluster: Cluster, devices: int) -> Cluster:
    """Return the same devices in nodes of ``devices`` each, every node a fast domain."""
    node = replace(cluster.pool.node, devices=devices, scaleup_domain=devices)
    return replace(cluster, pools=(replace(cluster.pool, node=node),))
