"""Read and check the selectors of device groups: ranges of a cluster's pools, in the cluster's order.

``*`` is all devices, ``h100-sxm-80gb[0:64]`` those 0 to 63 of a pool, ``h100-sxm-80gb`` all of it, and ``+`` joins
several. Pools have their names in a cluster file; the pool of a shorthand has the device's id.
"""

import re
from collections.abc import Iterator, Sequence

from meshwright.cluster.cluster import Cluster
from meshwright.errors import Problem, nearest
from meshwright.plans.forms.long import LongPlan

ALL = "*"
Runs = tuple[tuple[int, int], ...]
"""Devices from a first one to one behind the last, run by run."""
_SELECTOR = re.compile(r"\s*([^\[\]+]+?)\s*(?:\[\s*([0-9]{1,9})\s*:\s*([0-9]{1,9})\s*\])?\s*")


def group_problems(plan: LongPlan, cluster: Cluster) -> Iterator[Problem]:
    """Yield what is wrong with groups: selectors, and sets of devices that overlap or leave some out."""
    sets: dict[str, Runs] = {}
    for name, group in plan.groups.items():
        field = f"groups.{name}.devices"
        found = [*selector_problems(field, group.devices, cluster)]
        yield from found
        if not found:
            sets[name] = selected_devices(group.devices, cluster)
            yield from _cut_nodes(field, group.devices, cluster)
    if not plan.groups:
        yield Problem("groups", {}, "there is no group of devices", f'all: {{devices: "{ALL}"}}')
    if len(sets) < max(1, len(plan.groups)):
        return
    names = list(sets)
    for at, name in enumerate(names):
        for other in names[:at]:
            shared = _size(_common(sets[name], sets[other]))
            if shared and sets[name] != sets[other]:
                rule = f"shares {shared} devices with {other}; groups are equal or have no device in common"
                yield Problem(
                    f"groups.{name}.devices", plan.groups[name].devices, rule, plan.groups[other].devices
                )
    left = cluster.devices - _size(_merged([run for runs in sets.values() for run in runs]))
    if left:
        rule = f"the groups leave out {left} of {cluster.devices} devices"
        yield Problem("groups", names, rule, f'{names[0]}: {{devices: "{ALL}"}}')


def _size(runs: Runs) -> int:
    return sum(stop - start for start, stop in runs)


def _common(runs: Runs, others: Runs) -> Runs:
    """Return the devices in both."""
    found = ((max(a, c), min(b, d)) for a, b in runs for c, d in others)
    return tuple((start, stop) for start, stop in found if start < stop)


def _merged(runs: Sequence[tuple[int, int]]) -> Runs:
    """Return runs in order, with touching and overlapping ones joined."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(runs):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return tuple(found)


def selector_problems(field: str, text: str, cluster: Cluster) -> Iterator[Problem]:
    """Yield what is wrong with a selector of devices."""
    if text.strip() == ALL:
        return
    pools = {pool.name: pool for pool in cluster.pools}
    for piece in text.split("+"):
        match = _SELECTOR.fullmatch(piece)
        if match is None:
            example = next(iter(pools))
            yield Problem(
                field, text, f"{piece.strip()!r} is no selector", f'"{example}[0:{pools[example].count}]"'
            )
            continue
        pool = pools.get(match[1])
        if pool is None:
            yield Problem(field, text, f"there is no pool {match[1]}", nearest(match[1], pools))
        elif match[2] is not None and not int(match[2]) < int(match[3]) <= pool.count:
            rule = f"{match[1]} has devices 0 to {pool.count - 1}, so its ranges are within [0:{pool.count}]"
            yield Problem(field, text, rule, f'"{match[1]}[0:{pool.count}]"')


def selected_devices(text: str, cluster: Cluster) -> Runs:
    """Return the devices of a selector without problems, as runs of indices in the cluster's order."""
    if text.strip() == ALL:
        return ((0, cluster.devices),)
    first, pools = 0, dict[str, tuple[int, int]]()
    for pool in cluster.pools:
        pools[pool.name] = first, pool.count
        first += pool.count
    found = []
    for piece in text.split("+"):
        match = _SELECTOR.fullmatch(piece)
        assert match is not None
        start, count = pools[match[1]]
        low, high = (0, count) if match[2] is None else (int(match[2]), int(match[3]))
        found.append((start + low, start + high))
    return _merged(found)


def _cut_nodes(field: str, text: str, cluster: Cluster) -> Iterator[Problem]:
    """Warn of a selector that ends inside a node and does not divide it evenly."""
    for piece in text.split("+") if text.strip() != ALL else ():
        match = _SELECTOR.fullmatch(piece)
        if match is None or match[2] is None:
            continue
        pool = next(pool for pool in cluster.pools if pool.name == match[1])
        size = pool.devices_of_host
        for edge in (int(match[2]), int(match[3])):
            inside = edge % size
            if inside and size % inside and edge != pool.count:
                rule = f"ends inside a node of {size} devices, and {inside} do not divide it"
                yield Problem(field, text, rule, f"a multiple of {size}", "warning")
