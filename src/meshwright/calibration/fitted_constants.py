"""Constants that a fit found, with their covariance, and two tables that hold those of several fits.

The table of constants has a row for each fit and constant, that of factors the lower Cholesky factor of the covariance
of the constants' logarithms, a row for each fit and constant.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.draws import seeded_draws
from meshwright.calibration.fitted_parameters import priors
from meshwright.cost.uncertainty.constant_draws import ConstantDraws

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FittedConstants:
    """Values of constants, and the lower Cholesky factor of the covariance of their logarithms, in their order."""

    values: Mapping[str, float]
    factor: Floats

    @property
    def draws(self) -> ConstantDraws:
        """Return seeded joint draws of the constants."""
        return seeded_draws(self.values, self.factor, priors())


@dataclass(frozen=True)
class FitTables:
    """The two tables of several fits, by name; of what each left out, for example."""

    constants: Path
    factors: Path

    def write(self, fits: Mapping[str, FittedConstants]) -> None:
        """Write both tables."""
        values = [
            (of, name, f"{value:.5g}") for of, one in fits.items() for name, value in one.values.items()
        ]
        _write(self.constants, [("left_out", "constant", "value"), *values])
        factors = [
            (of, name, *(f"{number:.3g}" for number in row[: place + 1]))
            for of, one in fits.items()
            for place, (name, row) in enumerate(zip(one.values, one.factor.tolist(), strict=True))
        ]
        _write(self.factors, [("left_out", "constant", "lower Cholesky factor"), *factors])

    def read(self) -> dict[str, FittedConstants]:
        """Read what each fit found."""
        values: dict[str, dict[str, float]] = {}
        with self.constants.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                values.setdefault(row["left_out"], {})[row["constant"]] = float(row["value"])
        factors = {of: np.zeros((len(own), len(own))) for of, own in values.items()}
        with self.factors.open(encoding="utf-8") as lines:
            for of, constant, *numbers in list(csv.reader(lines))[1:]:
                factors[of][list(values[of]).index(constant), : len(numbers)] = [
                    float(one) for one in numbers
                ]
        return {of: FittedConstants(own, factors[of]) for of, own in values.items()}


def _write(path: Path, rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines, lineterminator="\n").writerows(rows)
