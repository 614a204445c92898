"""Compare a measured breakdown with a predicted one, row by row, and find the largest difference.

``pp`` and ``bubble`` are one row, because a kernel that receives cannot be distinguished from one that waits; time
without a known axis is a row without a prediction.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from meshwright.cost.closed_form.step_parts import PARTS
from meshwright.errors import InputError, Problem, nearest
from meshwright.ingestion.kineto.collective_axes import OTHER
from meshwright.ingestion.kineto.trace_breakdown import TraceBreakdown

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
class ComparisonRow:
    """Measured and predicted seconds per step of one row of categories."""

    category: str
    measured_s: float
    predicted_s: float

    @property
    def difference_s(self) -> float:
        """Measured − predicted."""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True, slots=True)
class PredictionComparison:
    """Rows of all categories, the whole step, and the category with the largest difference."""

    rows: tuple[ComparisonRow, ...]
    step: ComparisonRow
    largest: str

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready data."""
        rows = [asdict(row) | {"difference_s": row.difference_s} for row in (*self.rows, self.step)]
        return {"rows": rows, "largest": self.largest}


def compare_with_prediction(
    breakdown: TraceBreakdown, predicted: Mapping[str, float]
) -> PredictionComparison:
    """Compare a breakdown with a Report's ``breakdown_s``. Raises InputError for categories that no Report has."""
    unknown = sorted(set(predicted) - set(PARTS))
    if unknown:
        raise InputError(
            [
                Problem(f"breakdown_s.{key}", predicted[key], "is no category", nearest(key, PARTS))
                for key in unknown
            ]
        )
    rows = tuple(
        ComparisonRow(name, _sum(breakdown.seconds, parts), _sum(predicted, parts))
        for name, parts in ROWS.items()
    )
    whole = ComparisonRow(STEP, breakdown.step_s, sum(predicted.values()))
    return PredictionComparison(rows, whole, max(rows, key=lambda row: abs(row.difference_s)).category)


def _sum(seconds: Mapping[str, float], parts: tuple[str, ...]) -> float:
    return sum(seconds.get(part, 0.0) for part in parts)
