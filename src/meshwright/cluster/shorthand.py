"""A cluster in one line: ``h100-sxm-80gb x 64``, or ``h100-sxm-80gb x 64 @ aws-p5.48xlarge``.

``64 x h100-sxm-80gb``, ``64xH100`` and ``64 H100`` are read as well; a cluster's name always has the device first.
Everything else is the usual: node, price, failure rate. The count need not fill the last node.
"""

import re
from dataclasses import replace

from meshwright.cluster.catalog import (
    device,
    is_device,
    named_node,
    near_device_ids,
    node_device,
    nodes_of,
    usual_node,
)
from meshwright.cluster.catalog_prices import usual_price
from meshwright.cluster.cluster import Cluster, Device, Node, Pool
from meshwright.cluster.failure_rates import usual_failures
from meshwright.errors import InputError, Problem, attempted

MAX_DEVICES = 10**6
SOURCE = "shorthand"
"""What a cluster says of where it is from that was written in one line."""
EXAMPLE = "e.g. h100-sxm-80gb x 64"
_NODE = r"\s*(?:@\s*(?P<node>.*))?"
_FORM = re.compile(r"(?P<device>\S.*?)\s*[x×]\s*(?P<count>[-+]?[0-9][0-9._,e+]*)" + _NODE)
_COUNT_FIRST = re.compile(
    r"(?P<count>[0-9][0-9._,e+]*)\s*(?:(?P<sign>[x×])\s*|\s)(?P<device>[^\s@][^@]*?)" + _NODE
)


def parse_shorthand(text: str) -> Cluster | None:
    """Return the cluster that ``text`` names; None if it has not this form. Raises InputError (all problems)."""
    match = _matched(text.strip())
    if match is None:
        return None
    problems: list[Problem] = []
    kind = attempted(lambda: _device(match["device"], match["count"]), problems)
    count = attempted(lambda: device_count(match["count"]), problems)
    name = match["node"]
    node = None if name is None else attempted(lambda: named_node(name, "cluster.node"), problems)
    if kind and node and node_device(node.name) != kind.id:
        rule = f"this node carries {node_device(node.name)}, not {kind.id}"
        others = ", ".join(nodes_of(kind.id)) or "leave it out"
        problems.append(Problem("cluster.node", name, rule, f"nodes with {kind.id}: {others}"))
    if problems or kind is None or count is None:
        raise InputError(problems)
    return usual_cluster(kind, count, node)


def is_device_first(text: str) -> bool:
    """Return whether a text has the form ``DEVICE x COUNT``."""
    return _FORM.fullmatch(text.strip()) is not None


def _matched(text: str) -> re.Match[str] | None:
    """Return the parts of a one-line cluster in either order; of two plain numbers the smaller one is the count."""
    usual, count_first = _FORM.fullmatch(text), _COUNT_FIRST.fullmatch(text)
    if usual is not None:
        numbers = usual["device"].isdigit() and usual["count"].isdigit()
        return count_first if numbers and len(usual["device"]) < len(usual["count"]) else usual
    if count_first is None or count_first["sign"] or is_device(count_first["device"]):
        return count_first
    return None


def _device(name: str, count: str) -> Device:
    """Return the device of a name. Raise InputError, with the whole spelling of the clusters that may be meant."""
    try:
        return device(name, "cluster.device")
    except InputError as error:
        near = " or ".join(f"{kind} x {count}" for kind in near_device_ids(name))
        raise InputError(
            replace(one, suggestion=f"did you mean {near}?" if near else one.suggestion)
            for one in error.problems
        ) from None


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
    """Read a number of devices from 1 to 10**6, written in plain digits. Raises InputError."""
    count = int(text) if re.fullmatch(r"[0-9]{1,8}", text) else 0
    if not 1 <= count <= MAX_DEVICES:
        rule = f"the number of devices must be a whole number from 1 to {MAX_DEVICES}"
        raise InputError(Problem("cluster.count", text, rule, EXAMPLE))
    return count
