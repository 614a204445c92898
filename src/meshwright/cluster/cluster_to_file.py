"""Write a ``Cluster`` as a cluster file: ``load_cluster(dump_cluster(c)) == c``.

This holds for every cluster from a file, the shorthand or the catalogue. Devices and nodes that are
exactly the catalogue's are written by name, all others in full; prices and failure rates always in full, and
``unknown`` stands for what nobody knows.
"""

from dataclasses import asdict

from ruamel.yaml.comments import CommentedSeq

from meshwright.cluster.catalog import device, device_ids, named_node, node_names
from meshwright.cluster.cluster import Cluster, Device, Links, Node, Pool, Sourced
from meshwright.cluster.file_schema import UNKNOWN
from meshwright.cluster.file_units import DEVICE_SCALES, NODE_SCALES, unscaled
from meshwright.plans.files.meshwright_file import write_file
from meshwright.units import GIB, TERA


def dump_cluster(cluster: Cluster) -> str:
    """Return the cluster as YAML text, every figure with its unit and source."""
    data = {
        "name": cluster.name,
        "pools": [_pool(pool) for pool in cluster.pools],
        "tiers": [tier.to_data() for tier in cluster.tiers],
        **({} if cluster.links is None else {"links": _links(cluster.links)}),
        "failures_per_1000_node_days": _figure(cluster.failures_per_1000_node_days),
        **({"calibration": dict(cluster.calibration)} if cluster.calibration else {}),
        **({} if cluster.step_jitter is None else {"step_jitter": cluster.step_jitter}),
        **({} if cluster.calibrated is None else {"calibrated": asdict(cluster.calibrated)}),
        "source": cluster.source,
    }
    return write_file(data)


def _links(links: Links) -> dict[str, object]:
    """Return links as shares of the cards' rate: one row per node, each on its line."""
    rows = [CommentedSeq(row) for row in links.shares]
    for row in rows:
        row.fa.set_flow_style()
    return {"relative": rows, **({"kinds": list(links.kinds)} if links.kinds else {}), "source": links.source}


def _pool(pool: Pool) -> dict[str, object]:
    return {
        "name": pool.name,
        "count": pool.count,
        "device": _device(pool.device),
        "node": _node(pool.node, pool.device),
        "usd_per_device_hour": _figure(pool.usd_per_device_hour),
    }


def _is_known(kind: Device) -> bool:
    return kind.id in device_ids() and device(kind.id) == kind


def _device(kind: Device) -> object:
    if _is_known(kind):
        return kind.id
    return {
        "id": kind.id,
        "vendor": kind.vendor,
        "year": kind.year,
        "peak_tflops": {name: unscaled(value, TERA) for name, value in kind.peak_flops.items()},
        "memory_gib": kind.memory_bytes / GIB,
        **{key: unscaled(getattr(kind, name), scale) for key, (name, scale) in DEVICE_SCALES.items()},
        "scaleup_link": kind.scaleup_link,
        "power_w": _known(kind.power_w),
        "source": kind.source,
        "confidence": kind.confidence,
        "notes": kind.notes,
        **({"synchronous": True} if kind.synchronous else {}),
    }


def _node(node: Node, kind: Device) -> object:
    """Return the node's name if that is enough: a written-out device replaces a named node's link by its own."""
    one_link = _is_known(kind) or node.scaleup_bytes_per_s == kind.scaleup_bytes_per_s
    if one_link and node.name in node_names() and named_node(node.name) == node:
        return node.name
    return {
        "name": node.name,
        "devices": node.devices,
        "scaleup_domain": node.scaleup_domain,
        "nic_count": node.nic_count,
        **{
            key: unscaled(value, scale)
            for key, (name, scale) in NODE_SCALES.items()
            if (value := getattr(node, name)) is not None
        },
        **({} if node.host_memory_bytes is None else {"host_memory_gib": node.host_memory_bytes / GIB}),
        "host_memory_source": node.host_memory_source,
        "fabric": node.fabric,
        "power_w": _known(node.power_w),
        "source": node.source,
    }


def _figure(figure: Sourced | None) -> object:
    return UNKNOWN if figure is None else figure.to_data()


def _known(value: float | None) -> object:
    return UNKNOWN if value is None else value
