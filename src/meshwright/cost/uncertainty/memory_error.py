"""The interval of a predicted peak of memory, and the probability that a plan fits.

Nothing of the memory ledger is fitted to measured peaks: the interval in ``cost/data/memory_error.csv`` holds plain
residuals of published ones, every source with the same weight, wider by ``UNKNOWN`` for an unknown stack. A plan fits
with probability Φ(ln(usable/peak)/σ): σ is that of the interval, and ``SLACK`` for what allocators waste, which no
published run says (an assumption).
"""

import csv
from functools import cache
from importlib.resources import files
from math import erf, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.cost.uncertainty.interval import Interval
from meshwright.plans.setting import Setting

UNKNOWN = 1.5
UNKNOWN_STACK = "generic"
SLACK = 0.04
LIKELY = 0.8
"""A plan that fits with a smaller probability is too near to the edge to be counted on."""


def memory_interval(setting: Setting) -> Interval:
    """Return the interval of a predicted peak."""
    known = _measured()
    return known.widened(UNKNOWN) if setting.stack.name == UNKNOWN_STACK else known


def memory_room(total_bytes: float, setting: Setting) -> float:
    """Return how many standard deviations a peak is below the usable memory of a device."""
    usable = usable_device_bytes(setting.cluster)
    return log(usable / max(total_bytes, 1.0)) / sqrt(memory_interval(setting).sigma ** 2 + SLACK**2)


def fits_probability(total_bytes: float, setting: Setting) -> float:
    """Return the probability that a predicted peak is within the usable memory of a device."""
    return (1 + erf(memory_room(total_bytes, setting) / sqrt(2))) / 2


def fits_in_draws(total_bytes: NDArray[np.float64], setting: Setting, draws: int) -> NDArray[np.bool_]:
    """Return which plans fit in draws of the error of their peaks, which they share: (draws, n)."""
    normal = NormalDist()
    errors = np.random.default_rng(0).permutation([normal.inv_cdf((i + 0.5) / draws) for i in range(draws)])
    room = np.array([memory_room(each, setting) for each in total_bytes.tolist()])
    return np.asarray(errors[:, None] <= room)


def memory_origin() -> str:
    """Where the interval of a peak and the probability come from, in words."""
    return (
        "80 % interval: published peaks, to which nothing is fitted (docs/accuracy.md); fits_probability adds an "
        f"assumed {SLACK:.0%} for allocators"
    )


@cache
def _measured() -> Interval:
    with (files("meshwright.cost") / "data" / "memory_error.csv").open(encoding="utf-8") as lines:
        (row,) = csv.DictReader(lines)
    return Interval(float(row["low"]), float(row["high"]))
