"""Pools of a serving plan as lines of a table: degrees, replicas and devices of each."""

from collections.abc import Mapping, Sequence
from typing import Any

DEGREES = ("attention_dp", "tp", "pp", "cp", "ep", "etp")
HEADS = ("pool", "does", "phase", *DEGREES, "devices of a replica", "replicas", "devices")


def serving_lines(data: Mapping[str, Any]) -> list[str]:
    """Return the table of pools in a description, devices of all pools and idle ones, and warnings."""
    rows = [HEADS, *(row for name, pool in data["pools"].items() for row in _rows(name, pool))]
    return [
        *_columns(rows),
        f"devices: {data['devices']}, idle devices: {data['idle_devices']}",
        *(f"warning: {one['field']}: {one['rule']}" for one in data["warnings"]),
    ]


def _rows(name: str, pool: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each layout of a pool; layouts that are equal share one."""
    layouts, counts = pool["layouts"], [pool[key] for key in ("devices_per_replica", "replicas", "devices")]
    phases = list(layouts)
    if all(layout == layouts[phases[0]] for layout in layouts.values()):
        layouts = {" and ".join(phases): layouts[phases[0]]}
    return [
        (name, pool["does"], phase, *(str(layout[key]) for key in DEGREES), *map(str, counts))
        for phase, layout in layouts.items()
    ]


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
