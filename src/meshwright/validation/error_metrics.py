"""Figures of merit of predictions: errors, ranks, ordered pairs, regret, and a utilisation fitted to runs.

Errors are of r = predicted/measured: ape = |r − 1|, bias = geometric mean of r − 1. All functions take arrays of
positive numbers without gaps.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLOSE = 1.05
"""Pairs whose measured times differ by no more than this ratio are not counted."""
BEST = 3


def mape(ratio: Floats) -> float:
    """Return the mean absolute error of predicted/measured, as a fraction."""
    return float(np.abs(ratio - 1).mean())


def bias(ratio: Floats) -> float:
    """Return the geometric mean of predicted/measured, minus one."""
    return float(np.exp(np.log(ratio).mean()) - 1)


def error_figures(predicted: Floats, low: Floats, high: Floats, measured: Floats) -> dict[str, Any]:
    """Return the errors in the public form, with the share of measured values between ``low`` and ``high``.

    Fractions; all but ``n`` are None without values.
    """
    if not len(measured):
        names = ("mape", "median_ape", "bias", "p90_ape", "interval_coverage")
        return {"n": 0} | dict.fromkeys(names)
    ratio = predicted / measured
    ape = np.abs(ratio - 1)
    return {
        "n": len(measured),
        "mape": mape(ratio),
        "median_ape": float(np.median(ape)),
        "bias": bias(ratio),
        "p90_ape": float(np.quantile(ape, 0.9)),
        "interval_coverage": float(((low <= measured) & (measured <= high)).mean()),
    }


def ranks(values: Floats) -> Floats:
    """Return ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse.reshape(-1)]


def spearman(a: Floats, b: Floats) -> float | None:
    """Return Spearman's rank correlation; None if one side is constant."""
    x, y = ranks(a) - (len(a) + 1) / 2, ranks(b) - (len(b) + 1) / 2
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm else None


def ordered_pairs(measured: Floats, predicted: Floats) -> tuple[int, int]:
    """Return the pairs predicted in the measured order, and the pairs counted, which differ by more than ``CLOSE``.

    A pair with equal predictions is not in order. O(n·log² n).
    """
    order = np.argsort(measured, kind="stable")
    first = np.searchsorted(measured[order], CLOSE * measured[order], side="right")
    _, rank = np.unique(predicted[order], return_inverse=True)
    return _larger_from(rank.reshape(-1), first), int((len(order) - first).sum())


def _larger_from(rank: Ints, first: Ints) -> int:
    """Return Σ_i of how many of rank[first_i:] are above rank_i, for first_i > 0.

    Each suffix is cut into blocks whose lengths are powers of two, one at most of each; all blocks of a length are
    sorted together, and a binary search in its block answers every suffix.
    """
    size = 1 << (len(rank) - 1).bit_length()
    padded = np.full(size, -1, dtype=np.int64)
    padded[: len(rank)] = rank
    begin, total, length = first.copy(), 0, 1
    while length < size:
        due = np.flatnonzero((begin < size) & (begin & length > 0))
        blocks = np.sort(padded.reshape(-1, length), axis=1)
        keys = (blocks + np.arange(len(blocks))[:, None] * (size + 1)).reshape(-1)
        block = begin[due] // length
        found = np.searchsorted(keys, rank[due] + block * (size + 1), side="right")
        total += int(((block + 1) * length - found).sum())
        begin[due] += length
        length *= 2
    return total


def regret(measured: Floats, best: int = 1) -> float:
    """Return the least of the first ``best`` measured times over the least of all, minus one.

    The times are in the order in which their plans would be chosen.
    """
    return float(measured[:best].min() / measured.min() - 1)


def fitted_utilisation(utilisation: Floats) -> float:
    """Return the one utilisation U with the least mean |u/U − 1| over measured utilisations u.

    With x = 1/U the sum is Σ u·|x − 1/u|, so x is the median of 1/u with weights u.
    """
    ordered = np.sort(utilisation)[::-1]
    weight = np.cumsum(ordered)
    return float(ordered[np.searchsorted(weight, weight[-1] / 2)])
