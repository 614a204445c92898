"""Check that hardware figures are plausible, to catch the usual errors of units before they become a prediction.

Errors: bandwidths and memory that no device has and that a wrong unit explains. Warnings: peaks above every
known device, which may be a future part or a figure that counts 2:4 sparsity (twice the dense one). For a device
with measured figures all are warnings: a slow or busy core is slow, and nobody wrote its units by hand.
"""

from collections.abc import Iterator
from dataclasses import replace

from meshwright.cluster.catalog import PRECISIONS, device, device_ids
from meshwright.cluster.cluster import Cluster, Device, Node, Pool
from meshwright.errors import Problem
from meshwright.units import GIB, GIGA, TERA

MIN_SCALEUP, MAX_SCALEUP = 1 * GIGA, 5 * TERA
MIN_NIC, MAX_NIC = 0.1 * GIGA / 8, 20 * TERA / 8
MIN_HOST, MAX_HOST = 0.1 * GIGA, 5 * TERA
MIN_HOST_MEMORY, MAX_HOST_MEMORY = 1 * GIB, 131072 * GIB
MIN_HOST_MEMORY_RATE, MAX_HOST_MEMORY_RATE = 1 * GIGA, 20 * TERA
MIN_MEMORY, MAX_MEMORY = 0.25 * GIB, 4096 * GIB
MIN_MEMORY_RATE, MAX_MEMORY_RATE = 10 * GIGA, 100 * TERA
SPARSE_FACTOR = 1.9
MEASURED = "measured"
"""The confidence of a device that ``measure`` wrote."""


def implausible_figures(cluster: Cluster) -> tuple[Problem, ...]:
    """Return errors and warnings about a cluster's figures; empty if all are plausible."""
    return tuple(
        replace(problem, severity="warning") if pool.device.confidence == MEASURED else problem
        for index, pool in enumerate(cluster.pools)
        for problem in _pool(pool, f"pools.{index}")
    )


def _pool(pool: Pool, where: str) -> Iterator[Problem]:
    yield from _device(pool.device, f"{where}.device")
    yield from _peaks(pool.device, f"{where}.device")
    yield from _node(pool.node, f"{where}.node")


def _device(kind: Device, where: str) -> Iterator[Problem]:
    yield from _scaleup(kind.scaleup_bytes_per_s, where)
    gib = kind.memory_bytes / GIB
    if not MIN_MEMORY <= kind.memory_bytes <= MAX_MEMORY:
        rule = f"must be from {MIN_MEMORY / GIB:g} to {MAX_MEMORY / GIB:g} GiB"
        looks = f"if these are MiB, write {gib / 1024:.4g}" if gib > 1 else "write GiB, not TiB"
        yield Problem(f"{where}.memory_gib", gib, rule, looks)
    if not MIN_MEMORY_RATE <= kind.memory_bytes_per_s <= MAX_MEMORY_RATE:
        rule = f"must be from {MIN_MEMORY_RATE / GIGA:g} to {MAX_MEMORY_RATE / GIGA:g} GB/s"
        rate = kind.memory_bytes_per_s / GIGA
        yield Problem(f"{where}.memory_gbyte_per_s", rate, rule, "write GB/s: 3.35 TB/s is 3350")


def _node(node: Node, where: str) -> Iterator[Problem]:
    yield from _scaleup(node.scaleup_bytes_per_s, where)
    if not MIN_NIC <= node.nic_bytes_per_s <= MAX_NIC:
        rule = f"must be from {MIN_NIC * 8 / GIGA:g} to {MAX_NIC * 8 / GIGA:g} Gbit/s for a whole node"
        gbit = node.nic_bytes_per_s * 8 / GIGA
        yield Problem(f"{where}.nic_gbit_per_s_per_node", gbit, rule, "8 NICs of 400 Gbit/s are 3200")
    yield from _host(node, where)


def _host(node: Node, where: str) -> Iterator[Problem]:
    rate, memory = node.host_bytes_per_s, node.host_memory_bytes
    if rate is not None and not MIN_HOST <= rate <= MAX_HOST:
        rule = f"must be from {MIN_HOST / GIGA:g} to {MAX_HOST / GIGA:g} GB/s, one direction, per device"
        yield Problem(f"{where}.host_gbyte_per_s_per_device", rate / GIGA, rule, "PCIe 5.0 x16 is 63")
    if memory is not None and not MIN_HOST_MEMORY <= memory <= MAX_HOST_MEMORY:
        rule = f"must be from {MIN_HOST_MEMORY / GIB:g} to {MAX_HOST_MEMORY / GIB:g} GiB for a whole node"
        yield Problem(f"{where}.host_memory_gib", memory / GIB, rule, "write GiB: 2 TiB are 2048")
    bandwidth = node.host_memory_bytes_per_s
    if bandwidth is not None and not MIN_HOST_MEMORY_RATE <= bandwidth <= MAX_HOST_MEMORY_RATE:
        rule = f"must be from {MIN_HOST_MEMORY_RATE / GIGA:g} to {MAX_HOST_MEMORY_RATE / GIGA:g} GB/s for a whole node"
        advice = "16 channels of DDR5-4800 are 614"
        yield Problem(f"{where}.host_memory_gbyte_per_s", bandwidth / GIGA, rule, advice)


def _scaleup(rate: float, where: str) -> Iterator[Problem]:
    if not MIN_SCALEUP <= rate <= MAX_SCALEUP:
        rule = (
            f"must be from {MIN_SCALEUP / GIGA:g} to {MAX_SCALEUP / GIGA:g} GB/s, one direction, per device"
        )
        advice = "write GB/s of one device: NVLink 4 is 450"
        yield Problem(f"{where}.scaleup_gbyte_per_s_per_device", rate / GIGA, rule, advice)


def _peaks(kind: Device, where: str) -> Iterator[Problem]:
    """Compare with the same device of the catalogue if it is one, else with the highest peak of all."""
    same = kind.id in device_ids()
    known = [device(kind.id)] if same else [device(name) for name in device_ids()]
    for name in PRECISIONS:
        value = kind.peak_flops.get(name, 0.0)
        top = max((other.peak_flops.get(name, 0.0) for other in known), default=0.0)
        if top and value > top * (SPARSE_FACTOR if same else 1.0):
            whose = f"{kind.id}'s" if same else "the highest known"
            rule = f"is above {whose} dense peak, {top / TERA:g} TFLOP/s"
            advice = f"if the figure counts sparsity, write {value / 2 / TERA:g}"
            field = f"{where}.peak_tflops.{name}"
            yield Problem(field, value / TERA, rule, advice, severity="warning")
