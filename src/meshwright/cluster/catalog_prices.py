"""Usual price of a device-hour: the median on-demand price of ``cluster/data/prices.csv``.

Prices of one device differ four-fold between providers and change within months: any single figure is an
assumption to be replaced by the user's own. Spot, reserved, contract and index rows of the table are not used.
"""

import re
from statistics import median

from meshwright.cluster.catalog import device_id
from meshwright.cluster.cluster import Sourced
from meshwright.cluster.data_tables import read_table

_DATE = re.compile(r"\d{4}(?:-(?:0[1-9]|1[0-2])(?!\d)(?:-\d\d)?)?")


def usual_price(name: str) -> Sourced | None:
    """Return the median on-demand price in USD per device-hour, with sources and dates; None if none is known."""
    device = device_id(name)
    rows = [row for row in read_table("prices") if row["id"] == device and row["term"] == "on-demand"]
    if not rows:
        return None
    providers = ", ".join(sorted({row["provider"] for row in rows}))
    return Sourced(
        value=median(float(row["usd_per_device_hour"]) for row in rows),
        source=f"median of {len(rows)} on-demand price{'s' * (len(rows) > 1)}: {providers}",
        date=_span([row["date"] for row in rows]),
    )


def _span(texts: list[str]) -> str:
    dates = sorted(date for text in texts for date in _DATE.findall(text))
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
