"""The job that a launcher starts: its nodes and devices, and for runs that resume also storage and restarts."""

from dataclasses import dataclass

from meshwright.cluster.cluster import Cluster, Device
from meshwright.cluster.fast_domains import node_devices
from meshwright.plans.forms.long import LongPlan

IMAGE = "SET-YOUR-IMAGE"
"""Placeholder of a container's image: capitals are not legal there, so that a job with it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Shared storage of a job, at ``path`` on every node.

    ``bucket``: the URL of a bucket to mount there; empty: a file system or a volume. ``size_bytes`` is what a new
    volume must hold at least.
    """

    path: str
    bucket: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Processes of a job: ``devices_per_node`` on each of ``nodes`` nodes, one on each ``device``.

    ``host_order``: the hosts in the order in which ranks fill them, by their numbers in the cluster; None: any.
    ``processes_per_node``: how often a launcher that can start ranks by itself runs ``launch.sh`` on a node.
    ``restarts``: how often a failed job starts again, which makes sense where ``launch.sh`` resumes. ``accelerated``:
    the processes use accelerators, not CPUs.
    """

    name: str
    nodes: int
    devices_per_node: int
    device: Device
    host_order: tuple[int, ...] | None = None
    processes_per_node: int = 1
    image: str = IMAGE
    storage: Storage | None = None
    restarts: int = 0
    accelerated: bool = True


def job_for(cluster: Cluster, name: str, plan: LongPlan | None = None) -> Job:
    """Return the nodes of a cluster with one pool; a pool smaller than a node is a part of one node."""
    pool = cluster.pool
    count, per_node = pool.count, pool.node.devices
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name)
    nodes = max(1, count // per_node)
    return Job(
        name=plain,
        nodes=nodes,
        devices_per_node=min(count, per_node),
        device=pool.device,
        host_order=None if plan is None else host_order(plan, cluster),
    )


def host_order(plan: LongPlan, cluster: Cluster) -> tuple[int, ...] | None:
    """Return a plan's ``node_order`` in hosts, of which a scale-up domain may span several; None if it has none."""
    order = next(iter(plan.layouts.values())).node_order
    if order is None:
        return None
    hosts = node_devices(cluster.pool) // min(cluster.pool.count, cluster.pool.node.devices)
    return tuple(hosts * node + host for node in order for host in range(hosts))
