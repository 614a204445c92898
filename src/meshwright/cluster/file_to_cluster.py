"""Turn a cluster file into a ``Cluster``: look up names, convert units to SI, fill in usual values.

All problems are collected: unknown names, a written-out device or node that lacks a key, pools of one name, a
scale-up domain that does not fit its node.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshwright.cluster.catalog import device, named_node, usual_node
from meshwright.cluster.catalog_prices import usual_price
from meshwright.cluster.cluster import CalibrationRuns, Cluster, Device, Node, Pool, Sourced, Tier
from meshwright.cluster.failure_rates import usual_failures
from meshwright.cluster.file_schema import ClusterFile, DeviceFile, Figure, NodeFile, PoolFile
from meshwright.cluster.file_units import DEVICE_SCALES, NODE_SCALES, scaled
from meshwright.cluster.node_links import unfold_links
from meshwright.errors import InputError, Problem
from meshwright.plans.files.strict_types import Strict
from meshwright.units import GIB, TERA

DEVICE_NEEDS = {
    "id": "id: my-device",
    "peak_tflops": "peak_tflops: {bf16: 989.4}",
    "memory_gib": "memory_gib: 80",
    "memory_gbyte_per_s": "memory_gbyte_per_s: 3350",
    "scaleup_gbyte_per_s_per_device": "scaleup_gbyte_per_s_per_device: 450",
}
NODE_NEEDS = {
    "name": "name: my-node",
    "devices": "devices: 8",
    "nic_gbit_per_s_per_node": "nic_gbit_per_s_per_node: 3200",
}
"""Required keys of a device and a node that are not like one of the catalogue, with an H100's values."""
SCALEUP = "scaleup_gbyte_per_s_per_device"


def unfold(spec: ClusterFile) -> Cluster:
    """Return the cluster that a file describes. Raises InputError with every problem."""
    problems: list[Problem] = []
    pools = [_pool(pool, f"pools.{index}", problems) for index, pool in enumerate(spec.pools)]
    made = tuple(pool for pool in pools if pool is not None)
    problems += _twice([pool.name for pool in made])
    links = None if spec.links is None else unfold_links(spec.links, pools, problems)
    if problems:
        raise InputError(problems)
    return Cluster(
        name=spec.name,
        pools=made,
        tiers=tuple(Tier(**tier.to_data()) for tier in spec.tiers),  # type: ignore[arg-type]
        links=links,
        failures_per_1000_node_days=_failures(spec, made),
        calibration=tuple(spec.calibration.items()),
        calibrated=None if spec.calibrated is None else CalibrationRuns(**spec.calibrated.to_data()),  # type: ignore[arg-type]
        step_jitter=spec.step_jitter,
        source=spec.source,
    )


def _pool(spec: PoolFile, where: str, problems: list[Problem]) -> Pool | None:
    kind = _device(spec.device, f"{where}.device", problems)
    node = _pool_node(spec, kind, where, problems)
    if kind is None or node is None:
        return None
    return Pool(
        name=spec.name or kind.id, device=kind, node=node, count=spec.count, usd_per_device_hour=_price(spec)
    )


def _pool_node(spec: PoolFile, kind: Device | None, where: str, problems: list[Problem]) -> Node | None:
    """Return the given node, else the device's usual one; a link given for the device overrides the node's."""
    if spec.node is not None:
        node = _node(spec.node, kind, f"{where}.node", problems)
    elif spec.device.like is not None:
        node = usual_node(spec.device.like) if kind else None
    else:
        rule = "needed where the device is written out"
        problems.append(Problem(f"{where}.node", None, rule, "e.g. node: dgx-h100"))
        return None
    given = SCALEUP in spec.device.model_fields_set
    own = spec.node is not None and SCALEUP in spec.node.model_fields_set
    return (
        replace(node, scaleup_bytes_per_s=kind.scaleup_bytes_per_s) if node and kind and given > own else node
    )


def _price(spec: PoolFile) -> Sourced | None:
    if "usd_per_device_hour" in spec.model_fields_set or spec.device.like is None:
        return _sourced(spec.usd_per_device_hour)
    return usual_price(spec.device.like)


def _device(spec: DeviceFile, where: str, problems: list[Problem]) -> Device | None:
    try:
        base = _fields(device(spec.like, where)) if spec.like is not None else {}
    except InputError as error:
        problems.extend(error.problems)
        return None
    if spec.like is None and _lacks(spec, DEVICE_NEEDS, where, problems):
        return None
    given = _given(spec, DEVICE_SCALES, written_out=spec.like is None)
    if "peak_tflops" in given:
        given["peak_flops"] = {k: scaled(v, TERA) for k, v in given.pop("peak_tflops").items()}
    if "memory_gib" in given:
        given["memory_bytes"] = round(given.pop("memory_gib") * GIB)
    return Device(**{**base, **given})


def _node(spec: NodeFile, kind: Device | None, where: str, problems: list[Problem]) -> Node | None:
    try:
        base = _fields(named_node(spec.like, where)) if spec.like is not None else {}
    except InputError as error:
        problems.extend(error.problems)
        return None
    if spec.like is None and _lacks(spec, NODE_NEEDS, where, problems):
        return None
    given = _given(spec, NODE_SCALES, written_out=spec.like is None)
    if spec.like is None:
        link = kind.scaleup_bytes_per_s if kind else 0.0
        given = {"scaleup_domain": given["devices"], "nic_count": 1, "scaleup_bytes_per_s": link, **given}
    if "host_memory_gib" in given:
        given["host_memory_bytes"] = round(given.pop("host_memory_gib") * GIB)
    node = Node(**{**base, **given})
    if node.scaleup_domain % node.devices and node.devices % node.scaleup_domain:
        rule = f"must divide, or be a multiple of, the node's {node.devices} devices"
        problems.append(
            Problem(f"{where}.scaleup_domain", node.scaleup_domain, rule, f"write {node.devices}")
        )
        return None
    return node


def _lacks(spec: Strict, needs: Mapping[str, str], where: str, problems: list[Problem]) -> bool:
    missing = [key for key in needs if getattr(spec, key) is None]
    rule = "needed unless `like` names one of the catalogue"
    problems.extend(
        Problem(f"{where}.{key}", None, rule, f"add `{needs[key]}`, or `like`") for key in missing
    )
    return bool(missing)


def _given(spec: Strict, scales: Mapping[str, tuple[str, float]], *, written_out: bool) -> dict[str, Any]:
    """Return a file's values of a device or node, in SI units; with the defaults if written out."""
    keys = type(spec).model_fields if written_out else spec.model_fields_set
    given: dict[str, Any] = {}
    for key in keys:
        value = getattr(spec, key)
        if key == "like" or (value is None and key != "power_w"):
            continue
        name, scale = scales.get(key, (key, 0.0))
        given[name] = scaled(value, scale) if scale else value
    return given


def _fields(item: Device | Node) -> dict[str, Any]:
    return {name: getattr(item, name) for name in type(item).__dataclass_fields__}


def _failures(spec: ClusterFile, pools: tuple[Pool, ...]) -> Sourced | None:
    """Return the given failure rate; else the usual one if all pools are of devices that share one."""
    if "failures_per_1000_node_days" in spec.model_fields_set:
        return _sourced(spec.failures_per_1000_node_days)
    rates = {usual_failures(file.device.like) if file.device.like else None for file in spec.pools}
    return rates.pop() if len(rates) == 1 else None


def _sourced(figure: Figure | None) -> Sourced | None:
    if figure is None:
        return None
    return Sourced(figure.value, figure.source, figure.date, figure.offers, figure.term, figure.events)


def _twice(names: list[str]) -> list[Problem]:
    rule, advice = "two pools have this name", "name each pool, e.g. fast and slow"
    return [Problem("pools", name, rule, advice) for name, count in Counter(names).items() if count > 1]
