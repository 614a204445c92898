"""Units of a cluster file's keys, and the factors to SI.

``unscaled`` is the inverse of ``scaled`` bit for bit for every number that came from a file or the catalogue:
x·s rounds, so x is searched among the neighbours of v/s.
"""

import math

from meshwright.units import GIGA

GBIT = GIGA / 8

DEVICE_SCALES = {
    "memory_gbyte_per_s": ("memory_bytes_per_s", GIGA),
    "scaleup_gbyte_per_s_per_device": ("scaleup_bytes_per_s", GIGA),
}
NODE_SCALES = {
    "scaleup_gbyte_per_s_per_device": ("scaleup_bytes_per_s", GIGA),
    "nic_gbit_per_s_per_node": ("nic_bytes_per_s", GBIT),
    "host_gbyte_per_s_per_device": ("host_bytes_per_s", GIGA),
    "host_memory_gbyte_per_s": ("host_memory_bytes_per_s", GIGA),
}


def scaled(value: float, scale: float) -> float:
    """Convert a file's number to SI."""
    return value * scale


def unscaled(value: float, scale: float) -> float:
    """Return the number of a file that ``scaled`` turns into ``value``; the nearest one if there is none."""
    middle = value / scale
    below, above = math.nextafter(middle, 0.0), math.nextafter(middle, math.inf)
    for candidate in (middle, below, above, math.nextafter(below, 0.0), math.nextafter(above, math.inf)):
        if scaled(candidate, scale) == value:
            return candidate
    return middle
