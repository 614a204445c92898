"""Usual price of a device-hour: the median of the published offers of one term in ``cluster/data/prices.csv``.

Prices of one device differ four-fold between providers and change within months: any single figure is an
assumption to be replaced by the user's own. Reserved, contract, list and index rows of the table are not used.
"""

import re
from collections.abc import Mapping, Sequence
from statistics import median
from types import MappingProxyType

from meshwright.cluster.catalog import device_id
from meshwright.cluster.cluster import Sourced
from meshwright.cluster.data_tables import read_table
from meshwright.errors import InputError, Problem, nearest

ON_DEMAND, SPOT, LOWEST = "on-demand", "spot", "lowest"
TERMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {ON_DEMAND: (ON_DEMAND,), "capacity-block": ("capacity-block",), SPOT: (SPOT, "preemptible")}
)
"""The terms of offers, with their names in the table."""
PRICE_TERMS = (*TERMS, LOWEST)
_DATE = re.compile(r"\d{4}(?:-(?:0[1-9]|1[0-2])(?!\d)(?:-\d\d)?)?")


def usual_price(name: str, term: str = ON_DEMAND) -> Sourced | None:
    """Return the price of a term in USD per device-hour, with sources and dates; None if none is known.

    It is the median of the offers; for ``lowest`` the cheapest offer of any term.
    """
    device = device_id(name)
    rows = [row for row in read_table("prices") if row["id"] == device]
    if term == LOWEST:
        offered = [row for row in rows if _term(row)]
        return _lowest(min(offered, key=_price)) if offered else None
    return _median([row for row in rows if _term(row) == term], term)


def check_price_term(term: str) -> None:
    """Raise InputError for an unknown term."""
    if term not in PRICE_TERMS:
        raise InputError(Problem("price", term, "is no term of prices", nearest(term, PRICE_TERMS)))


def _median(rows: Sequence[Mapping[str, str]], term: str) -> Sourced | None:
    if not rows:
        return None
    offers, providers = tuple(map(_price, rows)), sorted({row["provider"] for row in rows})
    count = f"{len(providers)} provider{'s' * (len(providers) > 1)}"
    return Sourced(
        value=median(offers),
        source=f"median of {len(rows)} {term} price{'s' * (len(rows) > 1)} of {count}: {', '.join(providers)}",
        date=_span([row["date"] for row in rows]),
        offers=offers,
        term=term,
    )


def _lowest(row: Mapping[str, str]) -> Sourced:
    source = f"the lowest published offer, {_term(row)}, of 1 provider: {row['provider']}"
    return Sourced(_price(row), source, _span([row["date"]]), term=_term(row))


def _term(row: Mapping[str, str]) -> str:
    return next((term for term, names in TERMS.items() if row["term"] in names), "")


def _price(row: Mapping[str, str]) -> float:
    return float(row["usd_per_device_hour"])


def _span(texts: list[str]) -> str:
    dates = sorted(date for text in texts for date in _DATE.findall(text))
    if not dates:
        return ""
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
