"""Describe a cluster as JSON-ready data: units in the names, doubts included."""

from meshwright.cluster.cluster import Cluster, Links, Node, Pool, Sourced
from meshwright.cluster.fast_domains import node_devices
from meshwright.cluster.plausibility import implausible_figures
from meshwright.units import GIB, GIGA, TERA


def describe_cluster(cluster: Cluster) -> dict[str, object]:
    """Return the cluster for people and scripts. Bandwidths one direction, peaks dense; None = not known."""
    return {
        "name": cluster.name,
        "devices": cluster.devices,
        "nodes": sum(_nodes(pool) for pool in cluster.pools),
        "pools": [_pool(pool) for pool in cluster.pools],
        "tiers": [tier.to_data() for tier in cluster.tiers],
        "links": None if cluster.links is None else _links(cluster.links, cluster.pool),
        "usd_per_hour": cluster.usd_per_hour,
        "devices_power_w": _power(cluster),
        "failures_per_1000_node_days": _figure(cluster.failures_per_1000_node_days),
        "source": cluster.source,
        "warnings": [str(problem) for problem in implausible_figures(cluster)],
    }


def _links(links: Links, pool: Pool) -> dict[str, object]:
    """Return rates of whole nodes in one direction, slowest and fastest, and all as shares of the cards' rate."""
    shares = [share for i, row in enumerate(links.shares) for j, share in enumerate(row) if i != j]
    card = pool.node.nic_bytes_per_s * node_devices(pool) / pool.node.devices * 8 / GIGA
    return {
        "nodes": links.nodes,
        "slowest_gbit_per_s_per_node": min(shares) * card,
        "fastest_gbit_per_s_per_node": max(shares) * card,
        "kinds": list(links.kinds),
        "relative": [list(row) for row in links.shares],
        "source": links.source,
    }


def _pool(pool: Pool) -> dict[str, object]:
    kind = pool.device
    return {
        "name": pool.name,
        "count": pool.count,
        "nodes": _nodes(pool),
        "device": kind.id,
        "vendor": kind.vendor,
        "year": kind.year or None,
        "peak_dense_tflops_per_device": {k: value / TERA for k, value in kind.peak_flops.items()},
        "memory_gib_per_device": kind.memory_bytes / GIB,
        "memory_bytes_per_device": kind.memory_bytes,
        "memory_gbyte_per_s_per_device": kind.memory_bytes_per_s / GIGA,
        "scaleup_link": kind.scaleup_link,
        "power_w_per_device": kind.power_w,
        "node": _node(pool.node),
        "usd_per_device_hour": _figure(pool.usd_per_device_hour),
        "source": kind.source,
        "confidence": kind.confidence,
        "notes": kind.notes,
    }


def _node(node: Node) -> dict[str, object]:
    return {
        "name": node.name,
        "devices_per_node": node.devices,
        "scaleup_domain_devices": node.scaleup_domain,
        "scaleup_gbyte_per_s_per_device": node.scaleup_bytes_per_s / GIGA,
        "nics_per_node": node.nic_count,
        "nic_gbit_per_s_per_node": node.nic_bytes_per_s * 8 / GIGA,
        "nic_gbyte_per_s_per_node": node.nic_bytes_per_s / GIGA,
        "nic_gbyte_per_s_per_device": node.nic_bytes_per_s_per_device / GIGA,
        "host_gbyte_per_s_per_device": node.host_bytes_per_s and node.host_bytes_per_s / GIGA,
        "host_memory_gib_per_node": node.host_memory_bytes and node.host_memory_bytes / GIB,
        "host_memory_gbyte_per_s_per_node": node.host_memory_bytes_per_s
        and node.host_memory_bytes_per_s / GIGA,
        "host_memory_source": node.host_memory_source,
        "fabric": node.fabric,
        "power_w_per_node": node.power_w,
        "source": node.source,
    }


def _nodes(pool: Pool) -> int:
    return -(-pool.count // pool.node.devices)


def _power(cluster: Cluster) -> float | None:
    """Return the power limit of all devices together, without hosts; None if a pool's is not known."""
    powers = [pool.count * pool.device.power_w for pool in cluster.pools if pool.device.power_w is not None]
    return sum(powers) if len(powers) == len(cluster.pools) else None


def _figure(figure: Sourced | None) -> dict[str, object] | None:
    return None if figure is None else figure.to_data()
