"""Find a catalogue device by its driver's name, as ``torch.cuda.get_device_name`` returns it.

Most names are the catalogue's spellings preceded by the maker and followed by the kind of memory or a remark; the
others are listed. Devices that share a name are distinguished by memory: an ``NVIDIA H100`` of 95 GiB is the custom
part of the torchtitan benchmarks.
"""

import re

from meshwright.cluster.catalog import device
from meshwright.errors import InputError
from meshwright.units import GIB

NAMES = {
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H100 NVL": "h100-nvl-94gb",
    "NVIDIA H200 NVL": "h200-nvl-141gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA B300 SXM6 AC": "b300",
}
AMBIGUOUS = {"NVIDIA H100": ("h100-sxm-80gb", "h100-sxm-96gb-500w")}
MAKER = re.compile(r"^(?:NVIDIA|AMD Instinct|AMD|Tesla|Intel)\s+")
NEAR = 0.1
"""Reported and catalogued memory of one device differ by less than this fraction."""


def device_of(name: str, capacity_gib: float) -> str | None:
    """Return the id of the device with this name and memory; None if the catalogue does not have it."""
    candidates = AMBIGUOUS.get(name) or ((NAMES[name],) if name in NAMES else (MAKER.sub("", name),))
    for candidate in candidates:
        try:
            found = device(candidate)
        except InputError:
            continue
        if not capacity_gib or abs(capacity_gib * GIB / found.memory_bytes - 1) < NEAR:
            return found.id
    return None
