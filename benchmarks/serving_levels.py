"""Fit the levels of served models on a table of measured runs, and write the tables of the cost model.

    python benchmarks/serving_levels.py RUNS.csv

writes ``level_spreads.csv`` and ``levels.csv`` of ``src/meshwright/cost/serving/data``.
"""

import csv
import sys
from pathlib import Path

from meshwright.calibration.level_spreads import fit_spreads
from meshwright.calibration.run_errors import RunErrors, run_errors
from meshwright.calibration.serving_levels import learned_levels
from meshwright.validation.serving.predict_rows import predict_rows
from meshwright.validation.serving.read_serving_table import read_serving_table
from meshwright.validation.serving.serving_row import ServingRow

DATA = Path(__file__).parents[1] / "src/meshwright/cost/serving/data"
SPREADS = ("metric", "engine", "pools", "between", "scale", "rest", "unknown")
LEVELS = ("model", "device", "engine", "metric", "log_factor", "doubt", "rows")


def errors_of(path: str) -> RunErrors:
    """Return the errors of a table's runs without levels."""
    rows = [row for row in read_serving_table(path) if isinstance(row, ServingRow)]
    times = predict_rows([row.inputs for row in rows])
    return run_errors(rows, times)


def write_levels(path: str) -> None:
    """Write both tables."""
    errors = errors_of(path)
    spreads = fit_spreads(errors)
    values = (
        (*key, *(round(value, 4) for value in (one.between, one.scale, one.rest, one.unknown)))
        for key, one in spreads.items()
    )
    _write("level_spreads.csv", [SPREADS, *values])
    levels = learned_levels(errors, spreads)
    effects = (
        (*group, metric, round(effect.log_factor, 4), round(effect.doubt, 4), effect.rows)
        for group, of_group in sorted(levels.items())
        for metric, effect in of_group.items()
    )
    _write("levels.csv", [LEVELS, *effects])


def _write(name: str, rows: list[tuple[object, ...]]) -> None:
    with (DATA / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    write_levels(sys.argv[1])
