"""Read a price list: clusters on offer with the price of a device-hour. CSV with a header, one offer per line.

    on,usd_per_device_hour,max_devices
    h100-sxm-80gb x 64,2.10,
    a100-sxm-80gb,1.20,128
    clusters/own.yaml,0.85,

``on`` is a value of ``--on``; with ``max_devices`` it is a device, of which up to so many are available.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from meshwright.cluster.shorthand import device_count
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.files.yaml_text import read_file

COLUMNS = ("on", "usd_per_device_hour", "max_devices")
NEEDED = COLUMNS[:2]
EXAMPLE = "on,usd_per_device_hour,max_devices"
LARGE = 1e6


@dataclass(frozen=True, slots=True)
class PriceListEntry:
    """One offer: a value of ``--on``, and the USD for a device-hour there."""

    on: str
    usd_per_device_hour: float


def read_price_list(path: Path) -> tuple[PriceListEntry, ...]:
    """Return all offers of a file. Raises InputError with every problem, each with its line."""
    where = str(path)
    lines = read_file(path, "cluster", "check the path").splitlines()
    table = csv.DictReader(lines, restkey="beyond the header")
    header = [name.strip() for name in table.fieldnames or ()]
    problems = [
        Problem(where, name, "is no column of a price list", EXAMPLE)
        for name in header
        if name not in COLUMNS
    ]
    problems += [
        Problem(where, None, f"has no column {name}", EXAMPLE) for name in NEEDED if name not in header
    ]
    if problems:
        raise InputError(problems)
    table.fieldnames = header
    found = [_listed(row, f"{where} line {table.line_num}", problems) for row in table]
    if not found:
        problems.append(Problem(where, None, "has no offer", EXAMPLE + " and a line for each offer"))
    if problems:
        raise InputError(problems)
    return tuple(row for row in found if row is not None)


def _listed(row: dict[str, str], where: str, problems: list[Problem]) -> PriceListEntry | None:
    before = len(problems)
    if set(row) - set(COLUMNS) or None in row.values():
        problems.append(
            Problem(where, None, f"must have {len(COLUMNS)} cells or as many as the header", EXAMPLE)
        )
        return None
    cells = {name: value.strip() for name, value in row.items()}
    problems += _wrong_price(cells["usd_per_device_hour"], where)
    most = cells.get("max_devices", "")
    on = cells["on"]
    if not on:
        problems.append(Problem(f"{where}.on", "", "names no cluster", "h100-sxm-80gb x 64"))
    if most:
        count = attempted(lambda: device_count(most), problems)
        on = f"{on} x <={count}"
    return None if len(problems) > before else PriceListEntry(on, float(cells["usd_per_device_hour"]))


def _wrong_price(text: str, where: str) -> Iterator[Problem]:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not (isfinite(price) and 0 < price <= LARGE):
        rule = "must be a number above 0, in USD for an hour of one device"
        yield Problem(f"{where}.usd_per_device_hour", text, rule, "2.10")
