"""Estimate the level of a group from the errors of its runs: the best linear unbiased predictor of a random effect.

    e_i = u + r_i,   u ~ N(m, b²),   r_i ~ Student's t with ν degrees of freedom and scale s_i

For normal rests û = (m/b² + Σ e_i/s_i²)/(1/b² + Σ 1/s_i²), whose doubt is 1/√(1/b² + Σ 1/s_i²): Henderson's BLUP, in
which a group with few runs is shrunk to m. Measured runs have far outliers (a benchmark's warm-up, an image with
speculative decoding), hence t: each 1/s_i² has the weight (ν + 1)/(ν + (e_i − û)²/s_i²), to a fixed point (EM).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.levels import Effect

Floats = NDArray[np.float64]
FREEDOM = 2.0
"""Degrees of freedom of the rests: 2 to 4 predict runs of left-out groups alike, infinity worse."""
STEPS = 60


@dataclass(frozen=True, slots=True)
class Prior:
    """The expected level of a group before its runs, and the standard deviation between groups."""

    mean: float
    sd: float


def level_estimate(errors: Floats, scales: Floats, prior: Prior, freedom: float = FREEDOM) -> Effect:
    """Return the level of a group from the errors of its runs, with one scale for each."""
    if not len(errors):
        return Effect(prior.mean, prior.sd, 0)
    level, precision, exact = float(np.median(errors)), prior.sd**-2, scales**-2
    for _ in range(STEPS):
        weights = (
            exact if np.isinf(freedom) else exact * (freedom + 1) / (freedom + (errors - level) ** 2 * exact)
        )
        total = precision + weights.sum()
        level = float((prior.mean * precision + (weights * errors).sum()) / total)
    return Effect(level, float(total**-0.5), len(errors))
