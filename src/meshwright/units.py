"""Units: SI inside (bytes, seconds, FLOP), decimal prefixes for rates, GiB for memory capacity.

Bandwidth exists in two grains that people mix up, per device and per node; the two have types of their
own here, so that a type checker refuses one where the other is meant.
"""

import re
from typing import NewType

BytesPerSecondPerDevice = NewType("BytesPerSecondPerDevice", float)
BytesPerSecondPerNode = NewType("BytesPerSecondPerNode", float)

KIB, MIB, GIB = 2**10, 2**20, 2**30
MEGA, GIGA, TERA, PETA = 1e6, 1e9, 1e12, 1e15
MICROSECOND, MILLISECOND = 1e-6, 1e-3
HOUR_S, DAY_S = 3600.0, 86400.0


def count_in_k(text: str) -> int | None:
    """Return a count that is written in units of 1024, as ``8k`` for 8192; None for any other text."""
    match = re.fullmatch(r"([0-9]{1,9})[kK]", text.strip())
    return None if match is None else int(match[1]) * KIB


def gbit_per_s_to_bytes_per_s(gbit_per_s: float) -> float:
    """Network vendors' Gbit/s (1e9 bits) to bytes per second."""
    return gbit_per_s * GIGA / 8


def per_device(node: BytesPerSecondPerNode, devices_per_node: int) -> BytesPerSecondPerDevice:
    """Return a node's bandwidth shared evenly by its devices."""
    return BytesPerSecondPerDevice(node / devices_per_node)


def format_bytes(value: float) -> str:
    """Memory for people, in binary units: ``format_bytes(80 * 2**30) == '80.00 GiB'``."""
    for size, name in ((2**40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:.0f} B"


def format_seconds(value: float) -> str:
    """Format a duration for people: ``0.0123`` becomes ``12.30 ms``."""
    if abs(value) >= 100:
        return f"{value:.1f} s"
    for size, name in ((1.0, "s"), (MILLISECOND, "ms")):
        if abs(value) >= size:
            return f"{value / size:.3f} {name}"
    return f"{value / MICROSECOND:.2f} µs"


def format_count(value: float) -> str:
    """Format a count for people, decimal: ``70_553_706_496`` becomes ``70.55 B``."""
    for size, name in ((TERA, "T"), (GIGA, "B"), (MEGA, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:g}"
