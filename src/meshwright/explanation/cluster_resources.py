"""The resources of a cluster whose change is evaluated, each as a function of the setting.

A change multiplies a resource and leaves everything else as it is. The model knows the curves of collectives inside a
fast domain as they were measured; of links that are faster than the measured ones it says nothing, so ``most`` bounds
that factor.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Generic, TypeVar

from meshwright.cluster.cluster import Cluster, Device, Node, Tier
from meshwright.cost.constants import kernels
from meshwright.plans.setting import Setting
from meshwright.units import GIB, GIGA, TERA, BytesPerSecondPerDevice, BytesPerSecondPerNode

MEMORY = "device_memory"


T = TypeVar("T", Setting, Cluster)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """``value`` in ``unit``; ``scaled`` is a setting or cluster with ``factor`` times as much, up to ``most`` times."""

    name: str
    words: str
    value: float
    unit: str
    scaled: Callable[[float], T]
    most: float = inf

    def at(self, factor: float) -> str:
        """Return the value after a change, with its unit."""
        value = self.value * factor
        return f"{value:,.0f} {self.unit}" if value == round(value) else f"{value:,.5g} {self.unit}"


def rates(setting: Setting) -> Iterator[Resource[Setting]]:
    """Resources that make a step longer or shorter and leave alone what is legal and what fits."""
    for one in cluster_rates(setting.cluster, setting.workload.peak_precision):
        yield Resource(one.name, one.words, one.value, one.unit, _in_setting(setting, one), one.most)


def _in_setting(setting: Setting, one: Resource[Cluster]) -> Callable[[float], Setting]:
    return lambda factor: _with_cluster(setting, one.scaled(factor))


def cluster_rates(cluster: Cluster, precision: str) -> Iterator[Resource[Cluster]]:
    """Rates of a cluster's devices and links; arithmetic is that of a precision."""
    device, node = cluster.pool.device, cluster.pool.node
    yield Resource(
        "peak_flops",
        f"{precision} arithmetic",
        device.peak_flops[precision] / TERA,
        "TFLOP/s per device",
        lambda factor: _with_device(cluster, _faster(device, factor)),
    )
    yield Resource(
        "memory_bandwidth",
        "memory bandwidth",
        device.memory_bytes_per_s / GIGA,
        "GB/s per device",
        lambda f: _with_device(cluster, replace(device, memory_bytes_per_s=f * device.memory_bytes_per_s)),
    )
    if cluster.devices > 1:
        yield from _links(cluster, node)


def host_link(cluster: Cluster) -> Resource[Cluster]:
    """Return the links between devices and their hosts, whose rate is known, as a resource."""
    node = cluster.pool.node
    assert node.host_bytes_per_s is not None
    own = node.host_bytes_per_s
    return Resource(
        "host_bandwidth",
        "links to the hosts",
        own / GIGA,
        "GB/s per device",
        lambda f: _with_node(cluster, replace(node, host_bytes_per_s=BytesPerSecondPerDevice(f * own))),
    )


def _links(cluster: Cluster, node: Node) -> Iterator[Resource[Cluster]]:
    """Yield the resources of a network: scale-up links, network cards, tiers."""
    pool, own = cluster.pool, node.scaleup_bytes_per_s
    if node.scaleup_domain > 1:
        yield Resource(
            "scaleup_bandwidth",
            f"scale-up links ({pool.device.scaleup_link})",
            own / GIGA,
            "GB/s per device",
            lambda f: _with_node(
                cluster, replace(node, scaleup_bytes_per_s=BytesPerSecondPerDevice(f * own))
            ),
            max(1.0, kernels(pool.device.id).measured_scaleup_bytes_per_s / own),
        )
    if pool.count > node.scaleup_domain:
        cards = node.nic_bytes_per_s
        yield Resource(
            "network_bandwidth",
            "network cards",
            node.nic_bytes_per_s_per_device / GIGA,
            "GB/s per device",
            lambda f: _with_node(cluster, replace(node, nic_bytes_per_s=BytesPerSecondPerNode(f * cards))),
        )
        yield from (_uplinks(cluster, tier) for tier in cluster.tiers if tier.oversubscription > 1)


def _uplinks(cluster: Cluster, tier: Tier) -> Resource[Cluster]:
    """Return a tier's uplinks as a resource; more of them reduce its oversubscription down to none."""

    def scaled(factor: float) -> Cluster:
        less = replace(tier, oversubscription=tier.oversubscription / factor)
        return replace(cluster, tiers=tuple(less if other == tier else other for other in cluster.tiers))

    share = cluster.pool.node.nic_bytes_per_s_per_device / tier.oversubscription / GIGA
    return Resource(
        f"uplinks_{tier.name}",
        f"uplinks of {tier.name}",
        share,
        "GB/s per device",
        scaled,
        tier.oversubscription,
    )


def device_memory(setting: Setting) -> Resource[Setting]:
    """Memory of a device: no step gets longer or shorter by it, but another plan may fit."""
    device = setting.cluster.pool.device

    def scaled(factor: float) -> Setting:
        more = replace(device, memory_bytes=round(factor * device.memory_bytes))
        return _with_cluster(setting, _with_device(setting.cluster, more))

    return Resource(MEMORY, "device memory", device.memory_bytes / GIB, "GiB", scaled)


def work(setting: Setting) -> Iterator[Resource[Setting]]:
    """Batch and sequence length; only factors that give whole numbers can be taken."""
    workload = setting.workload
    for name, words, unit in (
        ("global_batch", "global batch", "sequences"),
        ("seq_len", "sequence length", "tokens"),
    ):
        value = getattr(workload, name)
        yield Resource(name, words, value, unit, _reworked(setting, name, value))


def _reworked(setting: Setting, name: str, value: int) -> Callable[[float], Setting]:
    def scaled(factor: float) -> Setting:
        changed: dict[str, Any] = {name: round(factor * value)}
        return replace(setting, workload=replace(setting.workload, **changed))

    return scaled


def _faster(device: Device, factor: float) -> Device:
    return replace(device, peak_flops={name: factor * peak for name, peak in device.peak_flops.items()})


def _with_device(cluster: Cluster, device: Device) -> Cluster:
    return replace(cluster, pools=(replace(cluster.pool, device=device),))


def _with_node(cluster: Cluster, node: Node) -> Cluster:
    return replace(cluster, pools=(replace(cluster.pool, node=node),))


def _with_cluster(setting: Setting, cluster: Cluster) -> Setting:
    return replace(setting, cluster=cluster)
