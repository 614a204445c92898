"""80 % intervals of predicted step times and memory, from published runs, and how likely a plan fits.

``data/intervals.csv`` holds 10 % and 90 % quantiles of measured/predicted, every source with the same weight. Step
times, for dense models and for models with experts: each source predicted by constants that were fitted without it.
For the ratio of two plans' times in one setting (``pair``) the quantiles are those of the ratio's error, taken both
ways. Memory: nothing of the ledger is fitted to measured peaks, so these are plain residuals. Where the device's
kernels were never measured (time) or the stack is unknown (all) there is no such run: the interval is widened by
``UNKNOWN`` in the logarithm for each, an assumption.

A plan fits with probability Φ(ln(usable/peak)/σ): σ is that of the memory interval, and ``SLACK`` for what allocators
waste, which no published run says (an assumption).
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import erf, log, sqrt

from meshwright.cost.constants import constants, kernels
from meshwright.plan.setting import Setting

UNKNOWN = 1.5
UNKNOWN_STACK = "generic"
SLACK = 0.04
QUANTILE = 1.2816
"""Standard deviations from the middle of a normal distribution to its 90 % quantile."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Factors on a predicted value: the ends of its 80 % interval."""

    low: float
    high: float

    def widened(self, doubts: int) -> "Interval":
        """Wider by ``UNKNOWN`` in the logarithm for each doubt."""
        return Interval(self.low ** (UNKNOWN**doubts), self.high ** (UNKNOWN**doubts))

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return (log(self.high) - log(self.low)) / (2 * QUANTILE)


def step_interval(setting: Setting) -> Interval:
    """The interval of a predicted step time."""
    found = _measured()["dense" if setting.model.architecture.moe is None else "experts"]
    return found.widened((not kernels(setting.cluster.pool.device.id).measured) + _unknown_stack(setting))


def memory_interval(setting: Setting) -> Interval:
    """The interval of a predicted peak."""
    return _measured()["memory"].widened(_unknown_stack(setting))


def pair_interval(setting: Setting) -> Interval:
    """The interval of the ratio of two plans' times in one setting: much of an error is common to both."""
    return _measured()["pair"].widened(_unknown_stack(setting))


def fits_probability(total_bytes: float, setting: Setting) -> float:
    """How likely a predicted peak stays below what is usable of a device."""
    usable = constants()["usable_memory"] * setting.cluster.pool.device.memory_bytes
    sigma = sqrt(memory_interval(setting).sigma ** 2 + SLACK**2)
    return (1 + erf(log(usable / max(total_bytes, 1.0)) / sigma / sqrt(2))) / 2


def interval_origin(setting: Setting) -> str:
    """Where the interval of a step time comes from, in words."""
    models = "dense models" if setting.model.architecture.moe is None else "models with experts"
    return f"80 % interval: published runs of {models}, each source left out of the fit (docs/accuracy.md)"


def memory_origin() -> str:
    """Where the interval of a peak and the probability come from, in words."""
    return (
        "80 % interval: published peaks, to which nothing is fitted (docs/accuracy.md); fits_probability adds an "
        f"assumed {SLACK:.0%} for allocators"
    )


def _unknown_stack(setting: Setting) -> bool:
    return setting.stack.name == UNKNOWN_STACK


@cache
def _measured() -> dict[str, Interval]:
    with (files("meshwright.cost") / "data" / "intervals.csv").open(encoding="utf-8") as lines:
        return {row["of"]: Interval(float(row["low"]), float(row["high"])) for row in csv.DictReader(lines)}
