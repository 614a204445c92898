"""Calibrate serving: learn the levels of a user's models, devices and engines from a table of runs.

The level of a group before its runs is the shipped one. Errors are those of each run in turn, with the levels before
and with levels from all other runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.calibration.run_errors import RunErrors, run_errors
from meshwright.calibration.serving_levels import learned_levels, left_out_levels
from meshwright.cost.serving.level_calibration import levels_text
from meshwright.cost.serving.levels import (
    METRICS,
    Effect,
    Effects,
    Group,
    LevelTable,
    Metric,
    level_with,
    shipped_levels,
    shipped_spreads,
)
from meshwright.errors import InputError, Problem
from meshwright.validation.serving.predict_rows import RunTimes, predict_rows
from meshwright.validation.serving.predict_serving import levelled_predictions, run_level
from meshwright.validation.serving.read_serving_table import read_serving_table
from meshwright.validation.serving.serving_prediction import Outcome
from meshwright.validation.serving.serving_row import ServingRow, SkippedRow
from meshwright.validation.serving.serving_summary import FIGURES, metric_errors


@dataclass(frozen=True)
class LeftOutErrors:
    """Errors of runs that were left out in turn.

    ``figures``: those of ``error_metrics.error_figures`` by metric; ``mean_log``: mean absolute logarithm of predicted
    over measured, of all values of all metrics.
    """

    figures: dict[Metric, dict[str, Any]]
    mean_log: float


@dataclass(frozen=True)
class ServingCalibration:
    """Levels of a user's runs, with the errors of runs that were left out, before and after."""

    levels: LevelTable
    runs: int
    before: LeftOutErrors
    after: LeftOutErrors
    skipped: tuple[SkippedRow, ...]

    @property
    def helps(self) -> bool:
        """True if left-out runs are predicted better."""
        return self.after.mean_log < self.before.mean_log

    def file_text(self) -> str:
        """Return the text of a file for ``--calibration``."""
        return levels_text(self.levels)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data; errors are fractions."""
        before, after = self.before, self.after
        return {
            "runs": self.runs,
            "levels": [_group_json(group, effects) for group, effects in sorted(self.levels.groups.items())],
            "left_out": {
                **{name: {"before": before.figures[name], "after": after.figures[name]} for name in METRICS},
                "mean_log_error": {"before": before.mean_log, "after": after.mean_log},
            },
            "helps": self.helps,
            "skipped": [{"id": row.id, "reason": row.reason} for row in self.skipped],
        }


def _group_json(group: Group, effects: Effects) -> dict[str, Any]:
    def of(effect: Effect) -> dict[str, float]:
        return {
            "factor": float(np.exp(effect.log_factor)),
            "log_factor": effect.log_factor,
            "doubt": effect.doubt,
            "rows": effect.rows,
        }

    return group._asdict() | {metric: of(effect) for metric, effect in effects.items()}


def calibrate_serving(path: str | Path) -> ServingCalibration:
    """Learn the levels of a table of serving runs. Raises InputError for a table without a usable run."""
    items = [*read_serving_table(path)]
    rows = [item for item in items if isinstance(item, ServingRow)]
    skipped = [item for item in items if isinstance(item, SkippedRow)]
    times = predict_rows([row.inputs for row in rows])
    errors = run_errors(rows, times)
    usable = np.flatnonzero(np.isfinite(errors.log_errors).any(axis=1))
    if not len(usable):
        rule = f"has no run with a prediction and a measured time or throughput; {len(skipped)} were skipped"
        raise InputError(Problem("runs", str(path), rule, "`meshwright validate RUNS.csv` lists the reasons"))
    levels = learned_levels(errors.take(usable), shipped_spreads(), _shipped)
    before, after = _errors_of_runs(rows, times, errors)
    skipped += _unused(rows, times, errors)
    return ServingCalibration(LevelTable(levels, Path(path).name), len(usable), before, after, tuple(skipped))


def _shipped(group: Group, metric: Metric) -> float:
    effect = shipped_levels().groups.get(group, {}).get(metric)
    return effect.log_factor if effect else 0.0


def _errors_of_runs(
    rows: Sequence[ServingRow], times: RunTimes, errors: RunErrors
) -> tuple[LeftOutErrors, LeftOutErrors]:
    """Return the errors of all runs with the levels of before, and with those of the other runs."""
    inputs = [row.inputs for row in rows]
    others = left_out_levels(errors, shipped_spreads(), _shipped)
    shipped = shipped_levels().groups
    levels = [
        level_with(group, {**shipped.get(group, {}), **effects}, shipped_spreads(), pools, "")
        for group, effects, pools in zip(errors.groups, others, errors.disaggregated.tolist(), strict=True)
    ]
    before = levelled_predictions(inputs, times, [run_level(run) for run in inputs])
    after = levelled_predictions(inputs, times, levels)
    return _left_out(rows, before), _left_out(rows, after)


def _left_out(rows: Sequence[ServingRow], predicted: Sequence[Outcome]) -> LeftOutErrors:
    pairs = [(row, one) for row, one in zip(rows, predicted, strict=True) if not isinstance(one, str)]
    chosen, made = [row for row, _ in pairs], [one for _, one in pairs]
    figures = {metric: metric_errors(metric, chosen, made) for metric in METRICS}
    values = [
        abs(np.log(guess.value / value))
        for row, one in pairs
        for field in FIGURES.values()
        if (value := getattr(row.measured, field)) and (guess := getattr(one, field))
    ]
    return LeftOutErrors(figures, float(np.mean(values)))


def _unused(rows: Sequence[ServingRow], times: RunTimes, errors: RunErrors) -> list[SkippedRow]:
    """Return the runs that were read and taught nothing."""
    known = [bool(np.isfinite(values).any()) for values in errors.log_errors]
    return [
        SkippedRow(
            id=row.id, source=row.source, reason=reason or "has no measured time or throughput", complete=True
        )
        for row, reason, used in zip(rows, times.reasons, known, strict=True)
        if not used
    ]
