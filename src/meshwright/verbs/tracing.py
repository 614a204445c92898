"""A plan's prediction beside a trace of one of its ranks: where they disagree most."""

from pathlib import Path
from typing import Any

from meshwright.import_.kineto import TraceBreakdown, read_kineto
from meshwright.import_.kineto_beside import Row, beside_prediction
from meshwright.import_.kineto_groups import plan_axes
from meshwright.plan.resolve import Resolved
from meshwright.program.lower import attention_grid, experts_grid
from meshwright.verbs.predicting import predicted

SUFFIXES = (".json", ".json.gz", ".gz")


def is_trace(path: str | Path) -> bool:
    """Whether a file is a trace by its name: plans are YAML."""
    return str(path).endswith(SUFFIXES)


def beside_trace(resolved: Resolved, path: str | Path) -> dict[str, Any]:
    """``compare``'s form: a is predicted, b is measured. Raises InputError where the trace can not be read."""
    (layout,) = resolved.long.layouts.values()
    pp = resolved.long.pipeline.ranks
    breakdown = read_kineto(path, plan_axes([attention_grid(layout, pp), experts_grid(layout, pp)]))
    found = beside_prediction(breakdown, predicted(resolved).breakdown_s)
    return {
        "rows": [_row(row) for row in (*found.rows, found.step)],
        "largest": found.largest,
        "remarks": [*_remarks(breakdown, resolved), *breakdown.notes],
        "trace": breakdown.to_json(),
    }


def _row(row: Row) -> dict[str, Any]:
    return {"quantity": row.category, "a": row.predicted_s, "b": row.measured_s, "unit": "s"}


def _remarks(breakdown: TraceBreakdown, resolved: Resolved) -> list[str]:
    """What makes the comparison doubtful."""
    devices, remarks = resolved.setting.cluster.devices, []
    if breakdown.world_size not in (None, devices):
        remarks.append(f"the trace is of {breakdown.world_size} ranks, the plan has {devices}")
    if breakdown.source == "host operators":
        remarks.append("the trace has no device: operators of the host stand for kernels")
    if not breakdown.steps_marked:
        remarks.append("the trace marks no steps: its whole span counts as one")
    return remarks
