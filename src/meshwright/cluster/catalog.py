"""The catalogue: devices and nodes by name, with the spellings that data files use.

Peaks are dense. Bandwidths are one direction, per device. ``memory_bytes`` is the most that a framework can allocate,
not the marketed figure. Column ``memory_origin`` gives its origin:

    torch      the total that ``torch.cuda.mem_get_info`` reports (79.10 GiB for an "80 GB" H100, 139.80 for
               an H200 of "141 GB"); drivers differ by 0.3 %.
    jax        ``bytes_limit`` of the device's memory statistics.
    marketed   unknown: the marketed figure read as GiB, less 1 %. NVIDIA's and AMD's HBM parts lie within 2 %
               of that rule, except the B300 family (marketed in decimal GB: 6 and 3 % less).

A usual node is the row of ``nodes.csv`` marked so, else a guess, labelled as one. In a rack-scale domain
(NVL72) a node is one host and its share of the rack's power. ``host_gbyte_per_s_per_device`` is nominal: 16 lanes of
PCIe 3.0, 4.0, 5.0 (8, 16, 32 GT/s, 128 of 130 bits: 15.75, 31.51, 63.02 GB/s; PCI-SIG), 121 of 6.0, or the C2C link
in the device's row. ``host_memory_gbyte_per_s`` is nominal, too: channels · 8 bytes · transfers per second of all
sockets; ``host_memory_source`` says where it and ``host_memory_gib`` come from. Empty: not known. Ignored: PCIe
switches, NUMA, and that a full mesh gives one pair of devices only its own link.
"""

import re
from functools import cache

from meshwright.cluster.cluster import Device, Node
from meshwright.cluster.data_tables import Row, read_table
from meshwright.errors import InputError, Problem, near_names, nearest
from meshwright.units import (
    GIB,
    GIGA,
    TERA,
    BytesPerSecondPerDevice,
    BytesPerSecondPerNode,
    gbit_per_s_to_bytes_per_s,
)

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")
GUESSED_NODE_DEVICES = 8
GUESSED_NIC_GBIT_PER_S = 400.0
MOST_NEAR = 4


def device_ids() -> tuple[str, ...]:
    """Return every device of the catalogue, in the order of the table."""
    return tuple(row["id"] for row in read_table("accelerators"))


def device_id(name: str, field: str = "device") -> str:
    """Return our id for a device under any known spelling: letter case, hyphens and spaces do not matter.

    Raises InputError with near names.
    """
    known = _spellings().get(_letters(name))
    if known is None:
        rule = "no device of this name is in the catalogue"
        near = " or ".join(near_device_ids(name))
        suggestion = f"did you mean {near}?" if near else nearest(name, device_ids())
        raise InputError(Problem(field, name, rule, suggestion))
    return known


def is_device(name: str) -> bool:
    """Return whether a name is a spelling of a device of the catalogue."""
    return _letters(name) in _spellings()


def near_device_ids(name: str) -> list[str]:
    """Return ids of devices that an unknown name may mean: all that contain it, else the most alike."""
    part = _letters(name)
    holding = [known for known in device_ids() if part and part in _letters(known)]
    return holding if 0 < len(holding) <= MOST_NEAR else near_names(name, device_ids())


def device(name: str, field: str = "device") -> Device:
    """Return the device called ``name`` (an id or a known spelling). Raises InputError."""
    return _devices()[device_id(name, field)]


def node_names() -> tuple[str, ...]:
    """Return every named node, e.g. ``aws-p5.48xlarge``."""
    return tuple(row["id"] for row in read_table("nodes"))


def named_node(name: str, field: str = "node") -> Node:
    """Return the node called ``name``. Raises InputError with near names."""
    row = _nodes().get(name.strip().lower())
    if row is None:
        raise InputError(Problem(field, name, "no node of this name is known", nearest(name, node_names())))
    return _node(row)


def node_device(name: str) -> str:
    """Return the id of the device in the node called ``name``."""
    return _nodes()[name.strip().lower()]["device"]


def nodes_of(device: str) -> tuple[str, ...]:
    """Return the names of the nodes with the device of this id."""
    return tuple(row["id"] for row in read_table("nodes") if row["device"] == device)


def usual_node(name: str) -> Node:
    """Return the node in which a device usually comes; a guess if the table has none. Raises InputError."""
    known = device_id(name)
    for row in read_table("nodes"):
        if row["device"] == known and row["usual"]:
            return _node(row)
    return _guessed_node(_devices()[known])


def _guessed_node(kind: Device) -> Node:
    pcie = kind.scaleup_link.startswith("PCIe")
    nics = 1 if pcie else GUESSED_NODE_DEVICES
    return Node(
        name=f"guess-{kind.id}",
        devices=GUESSED_NODE_DEVICES,
        scaleup_domain=GUESSED_NODE_DEVICES,
        scaleup_bytes_per_s=kind.scaleup_bytes_per_s,
        nic_count=nics,
        nic_bytes_per_s=BytesPerSecondPerNode(gbit_per_s_to_bytes_per_s(nics * GUESSED_NIC_GBIT_PER_S)),
        source=f"guess: 8 devices on {kind.scaleup_link}, {nics} x 400 Gbit/s",
    )


def _letters(name: str) -> str:
    return re.sub(r"[\s_-]", "", str(name).lower())


@cache
def _spellings() -> dict[str, str]:
    return {
        _letters(spelling): row["id"]
        for row in read_table("accelerators")
        for spelling in (row["id"], row["name"], *row["spellings"].split(";"))
        if spelling
    }


@cache
def _devices() -> dict[str, Device]:
    return {row["id"]: _device(row) for row in read_table("accelerators")}


@cache
def _nodes() -> dict[str, Row]:
    return {row["id"]: row for row in read_table("nodes")}


def _device(row: Row) -> Device:
    return Device(
        id=row["id"],
        vendor=row["vendor"],
        year=int(row["year"]),
        peak_flops={
            name: float(row[f"{name}_tflops"]) * TERA for name in PRECISIONS if row[f"{name}_tflops"]
        },
        memory_bytes=round(float(row["memory_gib"]) * GIB),
        memory_bytes_per_s=float(row["memory_gbyte_per_s"]) * GIGA,
        scaleup_bytes_per_s=BytesPerSecondPerDevice(float(row["scaleup_gbyte_per_s"]) * GIGA),
        scaleup_link=row["scaleup_link"],
        power_w=float(row["power_w"]) if row["power_w"] else None,
        source=row["source"],
        confidence=row["confidence"],
        notes=row["notes"],
    )


def _node(row: Row) -> Node:
    network = gbit_per_s_to_bytes_per_s(float(row["nic_gbit_per_s_per_node"]))
    scaleup = float(row["scaleup_gbyte_per_s_per_device"]) * GIGA
    host, memory = row["host_gbyte_per_s_per_device"], row["host_memory_gbyte_per_s"]
    return Node(
        name=row["id"],
        devices=int(row["devices"]),
        scaleup_domain=int(row["scaleup_domain"]),
        scaleup_bytes_per_s=BytesPerSecondPerDevice(scaleup),
        nic_count=int(row["nic_count"]),
        nic_bytes_per_s=BytesPerSecondPerNode(network),
        fabric=row["fabric"],
        host_bytes_per_s=BytesPerSecondPerDevice(float(host) * GIGA) if host else None,
        host_memory_bytes=round(float(row["host_memory_gib"]) * GIB) if row["host_memory_gib"] else None,
        host_memory_bytes_per_s=BytesPerSecondPerNode(float(memory) * GIGA) if memory else None,
        host_memory_source=row["host_memory_source"],
        power_w=float(row["power_w"]) if row["power_w"] else None,
        source=f"{row['source']} ({row['confidence']})",
    )
