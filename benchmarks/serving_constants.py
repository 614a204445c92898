"""Fit the three numbers of each serving engine with a third of its groups left out.

    python benchmarks/serving_constants.py measured_serving.csv

writes ``serving-constants.csv``: of which third of the groups (model, device, engine) the numbers know nothing. The
error that is minimised is the mean absolute logarithm, of each group alike, by Nelder and Mead's simplex.
"""

import csv
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from meshwright.calibration.run_errors import Floats, RunErrors, run_errors
from meshwright.cost.serving.levels import METRICS, Group
from meshwright.stack.serving.serving_stack import ServingStack, load_serving_stack
from meshwright.validation.serving.predict_rows import predict_rows
from meshwright.validation.serving.read_serving_table import read_serving_table
from meshwright.validation.serving.serving_row import ServingRow

FILE = Path(__file__).with_name("serving-constants.csv")
ENGINES = ("vllm", "sglang", "tensorrt-llm")
NAMES = ("host_s", "sequence_s", "prompt_s")
START = (1e-3, 1.5e-6, 0.08)
"""Where all fits begin, between the engines."""
SIDES = (0.7, 0.7, 0.8)
"""First steps of the simplex, in logarithms."""
THIRDS = 3
FAR = 1.5
"""Logarithms of errors beyond this count as this much."""
EVALUATIONS = 40
SPARSE = 6
"""Of the runs with a throughput alone each so-manieth is taken."""


def third_of(group: Group) -> int:
    """Return the third of a group."""
    return zlib.crc32(str(group).encode()) % THIRDS


def with_numbers(engine: str, numbers: Sequence[float]) -> ServingStack:
    """Return an engine with other numbers."""
    stack = load_serving_stack(engine)
    fitted = stack.fitted.model_copy(update=dict(zip(NAMES, map(float, numbers), strict=True)))
    return stack.model_copy(update={"fitted": fitted})


def table_rows(path: str) -> list[ServingRow]:
    """Return the runs of a table that were read."""
    return [row for row in read_serving_table(path) if isinstance(row, ServingRow)]


def fitted_without(rows: Sequence[ServingRow], engine: str, third: int) -> Floats:
    """Return the numbers of an engine from runs of one pool of the other two thirds of its groups."""
    known = [
        row
        for row in rows
        if row.inputs.engine == engine
        and len(row.inputs.workers) == 1
        and third_of(Group(*row.inputs.level_group)) != third
    ]
    timed = [row for row in known if row.measured.tpot_s is not None]
    used = timed + [row for row in known if row.measured.tpot_s is None][::SPARSE]
    inputs = [row.inputs for row in used]

    def loss(logs: Floats) -> float:
        stack = with_numbers(engine, np.exp(logs).tolist())
        return mean_error(run_errors(used, predict_rows(inputs, lambda _: stack)))

    return np.exp(simplex_minimum(loss, np.log(START), SIDES))


def mean_error(errors: RunErrors) -> float:
    """Return the sum over metrics of the mean error of groups."""
    total = 0.0
    sizes = np.minimum(np.abs(errors.log_errors), FAR)
    for place, _ in enumerate(METRICS):
        of_groups = [sizes[runs, place] for runs in errors.members().values()]
        means = [np.nanmean(one) for one in of_groups if np.isfinite(one).any()]
        total += float(np.mean(means)) if means else 0.0
    return total


def simplex_minimum(loss: Callable[[Floats], float], start: Floats, sides: Sequence[float]) -> Floats:
    """Return the minimum of a function by Nelder and Mead's method (1965), after ``EVALUATIONS``."""
    points = [np.array(start), *(start + side * np.eye(len(start))[axis] for axis, side in enumerate(sides))]
    values = [loss(point) for point in points]
    spent = len(points)
    while spent < EVALUATIONS:
        order = np.argsort(values)
        points, values = [points[i] for i in order], [values[i] for i in order]
        middle, worst = np.mean(points[:-1], axis=0), points[-1]
        tried = [middle + (middle - worst)]
        found = [loss(tried[0])]
        spent += 1
        if found[0] < values[0] or found[0] >= values[-2]:
            factor = 2.0 if found[0] < values[0] else 0.5 if found[0] < values[-1] else -0.5
            tried.append(middle + factor * (middle - worst))
            found.append(loss(tried[1]))
            spent += 1
        best = int(np.argmin(found))
        if found[best] < values[-1]:
            points[-1], values[-1] = tried[best], found[best]
            continue
        points = [points[0], *((points[0] + point) / 2 for point in points[1:])]
        values = [values[0], *(loss(point) for point in points[1:])]
        spent += len(points) - 1
    return points[int(np.argmin(values))]


def read_numbers() -> dict[tuple[str, int], list[float]]:
    """Return the numbers of an engine by the third that was left out."""
    with FILE.open(encoding="utf-8") as lines:
        return {
            (row["engine"], int(row["left_out"])): [float(row[name]) for name in NAMES]
            for row in csv.DictReader(lines)
        }


def write_numbers(path: str) -> None:
    """Fit all numbers and write the file."""
    rows = table_rows(path)
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("engine", "left_out", *NAMES))
        for engine in ENGINES:
            for third in range(THIRDS):
                numbers = fitted_without(rows, engine, third)
                writer.writerow((engine, third, *(f"{number:.3g}" for number in numbers)))
                file.flush()


if __name__ == "__main__":
    write_numbers(sys.argv[1])
