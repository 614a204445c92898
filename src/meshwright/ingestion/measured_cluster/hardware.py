"""The pool that was measured: the catalogue's device in its usual node, or a new device.

A device that the catalogue does not have gets measured figures: the best rate of matrix products as its peak, the rate
of a memory-bound pass as its memory's, the best rate at which one device of a host moved bytes as its link's, and
across hosts as its share of the network cards. They are achieved rates, not limits, so efficiencies relative to them
are near one. A rate that was not measured, because there was one device or one host, is the lowest that a cluster file
allows, and a finding.
"""

import re
from collections.abc import Mapping, Sequence
from statistics import median

from meshwright.cluster.catalog import device
from meshwright.cluster.cluster import Cluster, Device, Node, Pool
from meshwright.cluster.plausibility import MEASURED, MIN_NIC, MIN_SCALEUP
from meshwright.cluster.shorthand import usual_cluster
from meshwright.errors import InputError, Problem
from meshwright.ingestion.device_names import device_of
from meshwright.measurement.results import CollectiveKind, CollectiveTime, Results
from meshwright.units import GIB, BytesPerSecondPerDevice, BytesPerSecondPerNode

BUS: Mapping[str, float] = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0}
"""Number of times that a ring's collective sends all its bytes."""


def cluster_of(results: Results, findings: list[str]) -> Cluster:
    """Return the measured cluster, without constants. Raises InputError if several kinds of devices were measured."""
    machine = results.machine
    known = known_device(results)
    if known is None:
        findings.append(
            f"{machine.device_names[0]} is not in the catalogue: its figures are rates that were reached"
        )
        pool = _own_pool(results, findings)
        return Cluster(name=f"{pool.device.id} x {pool.count}", pools=(pool,), source=results.origin)
    cluster = usual_cluster(device(known), machine.ranks)
    node = cluster.pool.node
    if machine.devices_per_node < node.devices:
        findings.append(
            f"{machine.devices_per_node} devices of each host were measured, {node.name} has {node.devices}"
        )
    return cluster


def checked_base(base: Cluster, results: Results, findings: list[str]) -> Cluster:
    """Return the base if it can be the measured machine. Raises InputError with every contradiction."""
    known, problems = known_device(results), []
    if len(base.pools) != 1:
        rule = "constants were measured for one kind of device"
        problems.append(Problem("base", len(base.pools), rule, "a cluster of that pool alone"))
    elif known not in (None, base.pool.device.id):
        rule = f"the measured device is {known}"
        problems.append(Problem("base", base.pool.device.id, rule, "give the cluster that was measured"))
    if problems:
        raise InputError(problems)
    if known is None:
        findings.append(
            f"{results.machine.device_names[0]} is taken for {base.pool.device.id}, as the base says"
        )
    return base


def known_device(results: Results) -> str | None:
    """Return the catalogue's id of the device. Raises InputError if there are several kinds."""
    machine = results.machine
    names = sorted(set(machine.device_names))
    if len(names) > 1:
        rule = f"{len(names)} kinds of devices were measured together: {', '.join(names)}"
        raise InputError(Problem("machine.device_names", len(names), rule, "measure each kind by itself"))
    return device_of(names[0], min(machine.memory_bytes) / GIB) if machine.device_kind == "cuda" else None


def best_rate(times: Sequence[CollectiveTime], *, inside: bool) -> float:
    """Return the highest rate at which one device sent bytes, inside its host or out of it; 0 without times."""
    rates = (
        time.bytes * sent_share(time.kind, time.ranks, 1 if inside else time.local) / time.seconds
        for time in times
        if time.local
    )
    return rounded(max(rates, default=0.0))


def sent_share(kind: CollectiveKind, ranks: int, local: int) -> float:
    """Return the fraction of a collective's bytes that a device sends out of its domain of ``local`` members."""
    if kind == "send-recv":
        return 1.0
    if kind == "all-to-all":
        return (ranks - local) / ranks
    return BUS[kind] * (ranks - local) / ranks / local


def measured_flops(results: Results) -> dict[str, float]:
    """Return the best rate of matrix products by precision, each of the median device."""
    found: dict[str, float] = {}
    for kernel in results.kernels:
        if kernel.kind == "matmul":
            rate = kernel.flops / median(kernel.seconds)
            found[kernel.dtype] = max(rounded(rate), found.get(kernel.dtype, 0.0))
    return found


def measured_memory_rate(results: Results) -> float:
    """Return the bytes per second of a memory-bound pass on the median device; 0 if none was measured."""
    rates = [k.moved_bytes / median(k.seconds) for k in results.kernels if k.kind == "pass"]
    return rounded(max(rates, default=0.0))


def rounded(value: float) -> float:
    """Round to four digits: more of a measured figure is noise."""
    return float(f"{value:.4g}")


def _own_pool(results: Results, findings: list[str]) -> Pool:
    machine, origin = results.machine, results.origin
    peaks, memory_rate = measured_flops(results), measured_memory_rate(results)
    if not peaks or not memory_rate:
        rule = "needs products and a pass, since the catalogue does not have the device"
        raise InputError(Problem("kernels", len(results.kernels), rule, "meshwright measure --budget 600"))
    inside = best_rate(results.in_scope("part of node", "node", "device pair"), inside=True)
    across = best_rate(results.in_scope("nodes", "rail", "host pair"), inside=False)
    own_link = inside or across or MIN_SCALEUP
    network = machine.devices_per_node * across or MIN_NIC
    if not inside:
        findings.append(
            f"no two devices of a host were measured: {own_link:.3g} bytes/s stand for their link"
        )
    if not across:
        findings.append(
            f"no two hosts were measured: {network:.3g} bytes/s stand for the network cards of one"
        )
    slug = re.sub(r"[^a-z0-9]+", "-", machine.device_names[0].lower()).strip("-")[:80] or "device"
    kind = Device(
        id=slug,
        vendor="",
        year=0,
        peak_flops=peaks,
        memory_bytes=min(machine.memory_bytes),
        memory_bytes_per_s=memory_rate,
        scaleup_bytes_per_s=BytesPerSecondPerDevice(own_link),
        scaleup_link=machine.backend,
        power_w=None,
        source=origin,
        confidence=MEASURED,
        notes=f"{machine.device_names[0]}, {machine.threads_per_device} host threads per device",
        synchronous=machine.device_kind == "cpu",
    )
    node = Node(
        name=f"measured-{slug}",
        devices=machine.devices_per_node,
        scaleup_domain=machine.devices_per_node,
        scaleup_bytes_per_s=BytesPerSecondPerDevice(own_link),
        nic_count=1,
        nic_bytes_per_s=BytesPerSecondPerNode(network),
        source=origin,
    )
    return Pool(name=slug, device=kind, node=node, count=machine.ranks)
