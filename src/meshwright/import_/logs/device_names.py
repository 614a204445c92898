"""Devices by the name that their driver gives them, as ``torch.cuda.get_device_name`` returns it.

Most names are the catalogue's spellings with the maker before them and the kind of memory or a remark behind; the
others are listed. A name that several devices carry is told by its memory: an ``NVIDIA H100`` of 95 GiB is the custom
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
"""Reported and catalogued memory of one device differ by less than this."""


def device_of(name: str, capacity_gib: float) -> str | None:
    """The id of the device of this name and memory; None for one that the catalogue does not have."""
    candidates = AMBIGUOUS.get(name) or ((NAMES[name],) if name in NAMES else (MAKER.sub("", name),))
    for candidate in candidates:
        try:
            found = device(candidate)
        except InputError:
            continue
        if not capacity_gib or abs(capacity_gib * GIB / found.memory_bytes - 1) < NEAR:
            return found.id
    return None
