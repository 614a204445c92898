"""Quantiles of the number of failures in a training, which is Poisson distributed."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SUMMED_TO = 64.0
"""Expected counts up to which probabilities are summed; above, the expansion errs by less than one failure."""


def poisson_quantiles(probability: Floats, normal: Floats, mean: Floats) -> Floats:
    """Return for each element the least count k with P(N ≤ k) ≥ ``probability``, N being Poisson of its ``mean``.

    ``normal`` are the quantiles of a standard normal distribution at ``probability``. Above 64 expected failures it is
    the expansion of second order of E. A. Cornish and R. A. Fisher ("Moments and cumulants in the specification of
    distributions", 1938).
    """
    few = mean <= SUMMED_TO
    found = np.zeros_like(mean)
    found[few] = _summed(probability[few], mean[few])
    z, many = normal[~few], mean[~few]
    found[~few] = np.maximum(0.0, np.ceil(many + np.sqrt(many) * z + (z**2 - 1) / 6 - 0.5))
    return found


def _summed(probability: Floats, mean: Floats) -> Floats:
    count = np.zeros_like(mean)
    term = np.exp(-mean)
    total = term.copy()
    while (beyond := (total < probability) & (term > 0)).any():
        count[beyond] += 1
        term[beyond] *= mean[beyond] / count[beyond]
        total[beyond] += term[beyond]
    return count
