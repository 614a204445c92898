"""Fit the three numbers of each serving engine with each group (model, device, engine) left out in turn.

    python benchmarks/serving_constants.py RUNS.csv

writes ``serving-constants.csv``: an engine's numbers from all groups, and from all but one. The error that is minimised
is the mean absolute logarithm, of groups with up to 16 runs each, by Nelder and Mead's simplex. Runs are predicted on a
lattice of numbers; between its points the logarithms of errors are interpolated in those of the numbers.
"""

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.run_errors import Floats, RunErrors, run_errors
from meshwright.cost.serving.levels import METRICS, Group
from meshwright.stack.serving.serving_stack import ServingStack, load_serving_stack
from meshwright.validation.serving.predict_rows import predict_rows
from meshwright.validation.serving.read_serving_table import read_serving_table
from meshwright.validation.serving.serving_row import ServingRow

FILE = Path(__file__).with_name("serving-constants.csv")
ENGINES = ("vllm", "sglang", "tensorrt-llm")
NAMES = ("host_s", "sequence_s", "prompt_s")
LATTICE = ((4e-4, 1e-3, 2.5e-3, 6e-3), (1e-7, 7e-7, 2.5e-6, 1e-5), (0.02, 0.06, 0.15, 0.4))
START = (1e-3, 1.5e-6, 0.08)
"""Where all fits begin, between the engines, and what their numbers are shrunk to."""
UNLIKE = 0.03
"""Penalty of a squared logarithm of a number over that of ``START``. Without one the error of left-out groups is larger
(TPOT of SGLang 20 % in place of 15 %); .01, .03 and .1 were tried and differ little."""
SIDES = (0.7, 0.7, 0.8)
"""First steps of the simplex, in logarithms."""
FAR = 1.5
"""Logarithms of errors beyond this count as this much."""
MOST = 16
"""Runs of a group that count."""
EVALUATIONS = 150
ALL = Group("", "", "")
"""No group is left out."""


def with_numbers(engine: str, numbers: Sequence[float]) -> ServingStack:
    """Return an engine with other numbers."""
    stack = load_serving_stack(engine)
    fitted = stack.fitted.model_copy(update=dict(zip(NAMES, map(float, numbers), strict=True)))
    return stack.model_copy(update={"fitted": fitted})


def table_rows(path: str) -> list[ServingRow]:
    """Return the runs of a table that were read."""
    return [row for row in read_serving_table(path) if isinstance(row, ServingRow)]


@dataclass(frozen=True)
class LatticeErrors:
    """Errors of an engine's runs in one pool at all points of the lattice: ``errors`` (points, runs, metrics)."""

    runs: RunErrors
    errors: Floats

    def at(self, logs: Floats) -> Floats:
        """Return the errors at some numbers, by linear interpolation of logarithms."""
        places = [_place(np.log(axis), log) for axis, log in zip(LATTICE, logs, strict=True)]
        sizes = [len(axis) for axis in LATTICE]
        grid = self.errors.reshape(*sizes, *self.errors.shape[1:])
        found = np.zeros(self.errors.shape[1:])
        for corner in product((0, 1), repeat=len(LATTICE)):
            weight = np.prod([part if up else 1 - part for up, (_, part) in zip(corner, places, strict=True)])
            index = tuple(low + up for up, (low, _) in zip(corner, places, strict=True))
            found = found + weight * grid[index]
        return found

    def fitted_without(self, group: Group) -> Floats:
        """Return the numbers from the runs of all other groups."""
        others = [runs for name, runs in self.runs.members().items() if name != group]

        def loss(logs: Floats) -> float:
            unlike = float(((logs - np.log(START)) ** 2).sum())
            return mean_error(np.minimum(np.abs(self.at(logs)), FAR), others) + UNLIKE * unlike

        return np.exp(simplex_minimum(loss, np.log(START), SIDES))


def _place(axis: Floats, value: float) -> tuple[int, float]:
    """Return the point below a value and the part of the way to the next one; beyond the ends that of the end."""
    low = int(np.clip(np.searchsorted(axis, value) - 1, 0, len(axis) - 2))
    return low, float(np.clip((value - axis[low]) / (axis[low + 1] - axis[low]), 0, 1))


def lattice_errors(rows: Sequence[ServingRow], engine: str) -> LatticeErrors:
    """Predict the runs of an engine in one pool at all points of the lattice."""
    used = [row for row in rows if row.inputs.engine == engine and len(row.inputs.workers) == 1]
    inputs = [row.inputs for row in used]
    found = []
    for numbers in product(*LATTICE):
        stack = with_numbers(engine, numbers)
        found.append(run_errors(used, predict_rows(inputs, lambda _, stack=stack: stack)))
    known = np.logical_and.reduce([np.isfinite(one.log_errors) for one in found])
    return LatticeErrors(found[0], np.array([np.where(known, one.log_errors, np.nan) for one in found]))


def mean_error(sizes: Floats, groups: Sequence[NDArray[np.int64]]) -> float:
    """Return the sum over metrics of the mean error of groups, each with the weight of its runs, at most ``MOST``."""
    total = 0.0
    for place, _ in enumerate(METRICS):
        known = [one[np.isfinite(one)] for one in (sizes[runs, place] for runs in groups)]
        known = [one for one in known if len(one)]
        if known:
            weights = [min(len(one), MOST) for one in known]
            total += float(np.average([one.mean() for one in known], weights=weights))
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


def read_numbers() -> dict[Group, list[float]]:
    """Return an engine's numbers by the group that was left out; ``ALL`` with its name: none was."""
    with FILE.open(encoding="utf-8") as lines:
        return {
            Group(row["model"], row["device"], row["engine"]): [float(row[name]) for name in NAMES]
            for row in csv.DictReader(lines)
        }


def write_numbers(path: str) -> None:
    """Fit all numbers and write the file."""
    rows = table_rows(path)
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*Group._fields, *NAMES))
        for engine in ENGINES:
            errors = lattice_errors(rows, engine)
            for group in (ALL._replace(engine=engine), *sorted(errors.runs.members())):
                numbers = errors.fitted_without(group)
                writer.writerow((*group, *(f"{number:.3g}" for number in numbers)))
            file.flush()


if __name__ == "__main__":
    write_numbers(sys.argv[1])
