"""Candidates of a search as one table: pools, load and means of each, with their order by an objective."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

ServingObjective = Literal["throughput", "cost", "latency"]
OBJECTIVES: tuple[ServingObjective, ...] = ("throughput", "cost", "latency")
COLUMNS = np.dtype(
    [
        ("family", np.int32),
        ("first", np.int32),
        ("second", np.int32),
        ("first_replicas", np.int64),
        ("second_replicas", np.int64),
        ("max_sequences", np.int64),
        ("concurrency", np.int64),
        ("devices", np.int64),
        ("ttft_s", float),
        ("tpot_s", float),
        ("latency_s", float),
        ("requests_per_s", float),
    ]
)
"""``first``: the row of the design that serves or prefills; ``second``: that which decodes, −1 without one.
``max_sequences`` and ``concurrency`` are 0 where there is none."""
ALIKE = 1e-9
"""Part of a figure by which two candidates must differ."""
Table = NDArray[Any]
Floats = NDArray[np.float64]


def table_of(count: int, **columns: Any) -> Table:
    """Return a table of ``count`` candidates; columns that are not given are 0, ``second`` is −1."""
    table = np.zeros(count, dtype=COLUMNS)
    table["second"] = -1
    for name, values in columns.items():
        table[name] = values
    return table


@dataclass(frozen=True, slots=True)
class Goal:
    """The ranking of candidates. ``given_rate``: their requests/s are given, so that only costs differ.

    A cost is in dollars, or in device-hours where no price is known; ``usd_per_device_hour`` is then 1.
    """

    objective: ServingObjective
    usd_per_device_hour: float
    given_rate: bool

    def score(self, requests_per_s: Floats, devices: Any, latency_s: Any) -> Floats:
        """Return a number that grows with how good a candidate is; also of bounds of its figures."""
        if self.objective == "latency":
            return -np.asarray(latency_s, float)
        if self.given_rate:
            return -np.asarray(devices, float) * self.usd_per_device_hour
        if self.objective == "cost":
            with np.errstate(divide="ignore"):
                return -np.asarray(devices, float) * self.usd_per_device_hour / requests_per_s
        return np.asarray(requests_per_s, float)

    def scores(self, table: Table) -> Floats:
        """Return the scores of candidates."""
        return self.score(table["requests_per_s"], table["devices"], table["latency_s"])


def ranked(table: Table, goal: Goal, quantised: Sequence[int] = ()) -> Table:
    """Return the candidates, the best first; of equal ones that with fewest devices, quantised parts, pools, seconds.

    ``quantised``: of each family, the number of its formats that are not those of the released model; none: all 0.
    """
    scores = goal.scores(table)
    steps = np.round(np.log(np.maximum(np.abs(scores), 1e-300)) / ALIKE / 10) * np.sign(scores)
    pools = table["second"] >= 0
    changes = np.asarray(quantised)[table["family"]] if len(quantised) else np.zeros(len(table))
    return table[np.lexsort((table["latency_s"], pools, changes, table["devices"], -steps))]


def pareto(table: Table) -> Table:
    """Return the candidates that none beats in requests/s, latency and devices at once, most requests/s first."""
    order = np.lexsort((table["devices"], table["latency_s"], -table["requests_per_s"]))
    kept: list[int] = []
    for at in order:
        row, front = table[at], table[kept]
        beaten = (front["latency_s"] <= row["latency_s"] * (1 + ALIKE)) & (front["devices"] <= row["devices"])
        if not beaten.any():
            kept.append(int(at))
    return table[kept]
