"""Seeded joint draws of constants from the covariance that a fit leaves them, and the table that holds them.

The draws come in pairs of opposite sign and are made orthogonal (moment matching), so that their mean is zero and their
covariance exactly that of the fit: spreads of few draws then have no sampling error where responses are linear.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.fitted_parameters import Prior
from meshwright.cost.constant_values import ANY
from meshwright.cost.uncertainty.constant_draws import ConstantDraws

Floats = NDArray[np.float64]

DRAWS = 256
SEED = 0


def seeded_draws(values: Mapping[str, float], factor: Floats, priors: Mapping[str, Prior]) -> ConstantDraws:
    """Return draws of fitted constants, and of those of any stack and kernel family from their priors.

    ``values``: the fitted ones; ``factor``: the lower Cholesky factor of the covariance of their logarithms, (n, n).
    """
    unfitted = {name: prior.width for name, prior in priors.items() if name.startswith(ANY)}
    fitted, count = len(values), len(values) + len(unfitted)
    whole = np.zeros((count, count))
    whole[:fitted, :fitted] = factor
    whole[fitted:, fitted:] = np.diag(list(unfitted.values()))
    return ConstantDraws((*values, *unfitted), _standard_normal(count) @ whole.T, values)


def write_draws(draws: ConstantDraws, path: Path) -> None:
    """Write the table that predictions read."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(draws.names)
        writer.writerows([f"{number:.4f}" for number in row] for row in draws.log_factors.tolist())


def _standard_normal(columns: int) -> Floats:
    """Return draws whose mean is 0 and whose covariance is the identity: (DRAWS, columns)."""
    half = DRAWS // 2
    drawn = np.random.default_rng(SEED).standard_normal((half, columns))
    orthogonal, triangle = np.linalg.qr(drawn)
    whole = orthogonal * np.sign(np.diag(triangle)) * np.sqrt(half)
    return np.concatenate([whole, -whole])
