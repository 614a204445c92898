"""Compare a plan's prediction with a trace of one of its ranks: the largest disagreements."""

from pathlib import Path
from typing import Any

from meshwright.ingestion.kineto.collective_axes import plan_axes
from meshwright.ingestion.kineto.prediction_comparison import ComparisonRow, compare_with_prediction
from meshwright.ingestion.kineto.trace_breakdown import TraceBreakdown, read_kineto
from meshwright.plans.resolve import Resolved
from meshwright.program.lowering.plan_parts import attention_grid, experts_grid
from meshwright.verbs.predict.predict_plan import constants_remarks, predicted

SUFFIXES = (".json", ".json.gz", ".gz")


def is_trace(path: str | Path) -> bool:
    """Return true if a file name is that of a trace: plans are YAML."""
    return str(path).endswith(SUFFIXES)


def compare_with_trace(resolved: Resolved, path: str | Path) -> dict[str, Any]:
    """Compare a prediction (a) with a trace (b) in the form of ``compare``. Raise InputError if unreadable."""
    (layout,) = resolved.long.layouts.values()
    pp = resolved.long.pipeline.ranks
    breakdown = read_kineto(path, plan_axes([attention_grid(layout, pp), experts_grid(layout, pp)]))
    found = compare_with_prediction(breakdown, predicted(resolved).breakdown_s)
    return {
        "rows": [_row(row) for row in (*found.rows, found.step)],
        "largest": found.largest,
        "remarks": [*_remarks(breakdown, resolved), *breakdown.notes],
        "trace": breakdown.to_json(),
    }


def _row(row: ComparisonRow) -> dict[str, Any]:
    return {"quantity": row.category, "a": row.predicted_s, "b": row.measured_s, "unit": "s"}


def _remarks(breakdown: TraceBreakdown, resolved: Resolved) -> list[str]:
    """Return remarks that make the comparison doubtful."""
    devices, remarks = resolved.setting.cluster.devices, []
    if breakdown.world_size not in (None, devices):
        remarks.append(f"the trace is of {breakdown.world_size} ranks, the plan has {devices}")
    if breakdown.source == "host operators":
        remarks.append("the trace has no device: operators of the host stand for kernels")
    if not breakdown.steps_marked:
        remarks.append("the trace marks no steps: its whole span counts as one")
    return [*remarks, *constants_remarks(resolved.setting)]
