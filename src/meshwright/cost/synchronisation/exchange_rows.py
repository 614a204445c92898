"""Rows of a Report on exchanges between replicas: one for each state and axis.

``encoded_bytes`` are those of one rank for one exchange of everything, ``sent_bytes_per_step`` what it puts on the
wire: 2·(n − 1)/n of a sum among n ranks, (n − 1)/n of a gather, a scatter or an all-to-all.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from meshwright.program.pass_items import CollectiveKind

SUMS = ("all-reduce",)
SHARED = "rows share the exposed time of a part of the step in proportion to the seconds of their exchanges"
IN_STEPS = f"predicted: exchanges of every step, with the plan's bytes; {SHARED}"
"""The origin of rows of exchanges that every step has."""


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One row; seconds and bytes are those of a rank. Field names are the public JSON keys."""

    state: str
    over: str
    every: int | None
    exchanges_per_step: float
    encoded_bytes: int
    sent_bytes_per_step: float
    largest_exchange_bytes: int
    exchange_s: float
    window_s: float
    exposed_s_per_step: float

    def to_json(self) -> dict[str, object]:
        """Return the row as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ExchangeSummary:
    """The exchanges of a plan: rows, and the steps of a round; None where a rule says them and no run is known."""

    rows: tuple[ExchangeRow, ...]
    steps_per_round: int | None
    unit: Literal["step", "round"]
    origin: str

    def of_report(self, step_s: float) -> dict[str, Any]:
        """Return the Report's keys; ``step_s`` is the mean step."""
        exposed = sum(row.exposed_s_per_step for row in self.rows)
        return {
            "steps_per_round": self.steps_per_round,
            "utilisation": 1 - exposed / step_s,
            "synchronise": [row.to_json() for row in self.rows],
        }


def sent_bytes(kind: CollectiveKind, logical_bytes: float, ranks: int) -> float:
    """Return the bytes that a rank of a group of so many puts on the wire for a collective."""
    return logical_bytes * (ranks - 1) / ranks * (2 if kind in SUMS else 1)
