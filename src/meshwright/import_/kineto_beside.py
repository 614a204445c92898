"""A measured breakdown beside a predicted one, row by row, and where they disagree most.

``pp`` and ``bubble`` are one row, because a kernel that receives can not be told from one that waits, and what no axis
can be found for is a row without a prediction.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.cost.group_time import PARTS
from meshwright.errors import InputError, Problem, nearest
from meshwright.import_.kineto import TraceBreakdown
from meshwright.import_.kineto_groups import OTHER

STEP = "step"
PIPELINE = ("pp", "bubble")
ROWS: Mapping[str, tuple[str, ...]] = {
    "compute": ("compute",),
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "pp + bubble": PIPELINE,
    "dp": ("dp",),
    "optimizer": ("optimizer",),
    "host": ("host",),
    OTHER: (OTHER,),
}


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds per step of a category, or of several; ``difference`` is measured − predicted."""

    category: str
    measured_s: float
    predicted_s: float

    @property
    def difference_s(self) -> float:
        """Measured − predicted."""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True, slots=True)
class Beside:
    """Rows of all categories, the whole step, and the category with the largest difference."""

    rows: tuple[Row, ...]
    step: Row
    largest: str

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        rows = [asdict(row) | {"difference_s": row.difference_s} for row in (*self.rows, self.step)]
        return {"rows": rows, "largest": self.largest}


def beside_prediction(breakdown: TraceBreakdown, predicted: Mapping[str, float]) -> Beside:
    """Compares with ``breakdown_s`` of a Report. Raises InputError for categories that no Report has."""
    unknown = sorted(set(predicted) - set(PARTS))
    if unknown:
        raise InputError(
            [
                Problem(f"breakdown_s.{key}", predicted[key], "is no category", nearest(key, PARTS))
                for key in unknown
            ]
        )
    rows = tuple(
        Row(name, _sum(breakdown.seconds, parts), _sum(predicted, parts)) for name, parts in ROWS.items()
    )
    whole = Row(STEP, breakdown.step_s, sum(predicted.values()))
    return Beside(rows, whole, max(rows, key=lambda row: abs(row.difference_s)).category)


def _sum(seconds: Mapping[str, float], parts: tuple[str, ...]) -> float:
    return sum(seconds.get(part, 0.0) for part in parts)
