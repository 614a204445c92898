"""80 % intervals of predicted step times and memory, from published runs, and the probability that a plan fits.

``cost/data/intervals.csv`` holds 10 % and 90 % quantiles of measured/predicted, every source with the same weight. Step
times, for dense models and for models with experts: where runs of the very stack on the very kind of device were
fitted (``cost/data/seen.csv``), quantiles of what the fit leaves (``is_fitted_setting``), of these runs alone if
they are many; elsewhere, of runs whose source was left out of the fit (``unseen``), and where the device's kernels
were never measured wider by ``UNKNOWN`` in the logarithm, an assumption. Those of models with experts are no
narrower than ``EXPERTS`` to either side: few such runs are published, of two sources, and the same plan's step
differs by more than that between releases of one framework (docs/accuracy.md). For the ratio of two plans' times in
one setting (``pair``) the quantiles are those of the ratio's error, taken both ways. Memory: nothing of the ledger
is fitted to measured peaks, so these are plain residuals, wider by ``UNKNOWN`` for an unknown stack.

A plan fits with probability Φ(ln(usable/peak)/σ): σ is that of the memory interval, and ``SLACK`` for what allocators
waste, which no published run says (an assumption).
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import erf, log, sqrt

from meshwright.cost.constants import constants, kernels
from meshwright.plans.setting import Setting

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


EXPERTS = 0.25
"""The least that an interval of a model with experts goes to either side: 29 runs are too few to say less."""
LIKELY = 0.8
"""A plan that fits with a smaller probability is too near to the edge to be counted on."""


def is_fitted_setting(setting: Setting) -> bool:
    """Return true if runs of this stack on this kind of device were fitted."""
    return _key(setting) in _seen()


def _key(setting: Setting) -> tuple[str, str]:
    return setting.stack.name, kernels(setting.cluster.pool.device.id).family


def step_interval(setting: Setting) -> Interval:
    """Return the interval of a predicted step time."""
    if setting.model.architecture.moe is None:
        return _time_interval(setting, "dense")
    found = _time_interval(setting, "experts")
    return Interval(min(found.low, 1 - EXPERTS), max(found.high, 1 + EXPERTS))


def pair_interval(setting: Setting) -> Interval:
    """Return the interval of the ratio of two plans' times in one setting; their errors are correlated."""
    return _time_interval(setting, "pair")


def _time_interval(setting: Setting, of: str) -> Interval:
    if is_fitted_setting(setting):
        own = _seen()[_key(setting)]
        return own if own is not None and of != "pair" else _measured()[f"{of} seen"]
    return _measured()[f"{of} unseen"].widened(not kernels(setting.cluster.pool.device.id).measured)


def memory_interval(setting: Setting) -> Interval:
    """Return the interval of a predicted peak."""
    return _measured()["memory"].widened(setting.stack.name == UNKNOWN_STACK)


def fits_probability(total_bytes: float, setting: Setting) -> float:
    """Return the probability that a predicted peak is within the usable memory of a device."""
    usable = constants()["usable_memory"] * setting.cluster.pool.device.memory_bytes
    sigma = sqrt(memory_interval(setting).sigma ** 2 + SLACK**2)
    return (1 + erf(log(usable / max(total_bytes, 1.0)) / sigma / sqrt(2))) / 2


def interval_origin(setting: Setting) -> str:
    """Where the interval of a step time comes from, in words."""
    models = "dense models" if setting.model.architecture.moe is None else "models with experts"
    how = (
        "of this stack and device, which were fitted"
        if is_fitted_setting(setting)
        else "each source left out of the fit"
    )
    least = "" if setting.model.architecture.moe is None else f", and no less than ±{EXPERTS:.0%}"
    return f"80 % interval: published runs of {models}, {how}{least} (docs/accuracy.md)"


def memory_origin() -> str:
    """Where the interval of a peak and the probability come from, in words."""
    return (
        "80 % interval: published peaks, to which nothing is fitted (docs/accuracy.md); fits_probability adds an "
        f"assumed {SLACK:.0%} for allocators"
    )


@cache
def _measured() -> dict[str, Interval]:
    with (files("meshwright.cost") / "data" / "intervals.csv").open(encoding="utf-8") as lines:
        return {row["of"]: Interval(float(row["low"]), float(row["high"])) for row in csv.DictReader(lines)}


@cache
def _seen() -> dict[tuple[str, str], Interval | None]:
    """Stacks and kernel families whose runs were fitted; their own interval where there are enough of them."""
    with (files("meshwright.cost") / "data" / "seen.csv").open(encoding="utf-8") as lines:
        return {
            (r["stack"], r["kernels"]): Interval(float(r["low"]), float(r["high"])) if r["low"] else None
            for r in csv.DictReader(lines)
        }
