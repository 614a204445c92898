"""A cluster in one line: ``h100-sxm-80gb x 64``, or ``h100-sxm-80gb x 64 @ aws-p5.48xlarge``.

Everything else is the usual: node, price, failure rate. The count need not fill the last node.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from meshwright.cluster.catalog import device, named_node, node_device, nodes_of, usual_node
from meshwright.cluster.failures import usual_failures
from meshwright.cluster.graph import Cluster, Device, Node, Pool
from meshwright.cluster.prices import usual_price
from meshwright.errors import InputError, Problem

T = TypeVar("T")

MAX_DEVICES = 10**6
SOURCE = "shorthand"
"""What a cluster says of where it is from that was written in one line."""
EXAMPLE = "e.g. h100-sxm-80gb x 64"
_FORM = re.compile(r"(?P<device>\S.*?)\s*[x×]\s*(?P<count>[-+]?[0-9][0-9._,e+]*)\s*(?:@\s*(?P<node>.*))?")


def parse_shorthand(text: str) -> Cluster | None:
    """The cluster that ``text`` names; None when it has not this form. Raises InputError (all problems)."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    problems: list[Problem] = []
    kind = _found(lambda: device(match["device"], "cluster.device"), problems)
    count = _found(lambda: device_count(match["count"]), problems)
    name = match["node"]
    node = None if name is None else _found(lambda: named_node(name, "cluster.node"), problems)
    if kind and node and node_device(node.name) != kind.id:
        rule = f"this node carries {node_device(node.name)}, not {kind.id}"
        others = ", ".join(nodes_of(kind.id)) or "leave it out"
        problems.append(Problem("cluster.node", name, rule, f"nodes with {kind.id}: {others}"))
    if problems or kind is None or count is None:
        raise InputError(problems)
    return usual_cluster(kind, count, node)


def usual_cluster(kind: Device, count: int, node: Node | None = None) -> Cluster:
    """``count`` devices of the catalogue in one pool, with everything else as usual."""
    return Cluster(
        name=f"{kind.id} x {count}" + (f" @ {node.name}" if node else ""),
        pools=(
            Pool(
                name=kind.id,
                device=kind,
                node=node or usual_node(kind.id),
                count=count,
                usd_per_device_hour=usual_price(kind.id),
            ),
        ),
        failures_per_1000_node_days=usual_failures(kind.id),
        source=SOURCE,
    )


def device_count(text: str) -> int:
    """A number of devices from 1 to 10**6, written in plain digits. Raises InputError."""
    count = int(text) if re.fullmatch(r"[0-9]{1,8}", text) else 0
    if not 1 <= count <= MAX_DEVICES:
        rule = f"the number of devices must be a whole number from 1 to {MAX_DEVICES}"
        raise InputError(Problem("cluster.count", text, rule, EXAMPLE))
    return count


def _found(make: Callable[[], T], problems: list[Problem]) -> T | None:
    try:
        return make()
    except InputError as error:
        problems.extend(error.problems)
        return None
