"""Compute the regret of plans under drawn prediction errors, and the order in which they are recommended.

The regret of a plan is by how much longer it takes than the fastest one, which no one knows beforehand: with drawn
errors of all plans' times and memory it is a distribution. The plan with the least 80 % quantile of it is recommended.
Plans within ``CLOSE`` of that are as good; of them the one with the fewest axes above 1 comes first, then the fewest
departures from the stack's defaults, then the one with the most free memory.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays

CLOSE = 0.01
QUANTILE = 0.8
MOST_COMPARED = 400
"""Plans whose regrets are drawn together; of more the fastest."""
AXES = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Regret:
    """By how much a plan is slower than the best one: the mean over draws, and what 80 % of them stay below."""

    mean: float
    p80: float

    def scaled(self, ratio: float) -> "Regret":
        """Return the regret of the plan with ``ratio`` times its step time."""
        return Regret(*(max(0.0, (1 + value) * ratio - 1) for value in (self.mean, self.p80)))

    def to_json(self) -> dict[str, float]:
        """Return the public form, as fractions."""
        return {"mean": self.mean, "p80": self.p80}


def regrets(step_s: Floats, log_errors: Floats, fits: NDArray[np.bool_] | None = None) -> list[Regret]:
    """Return the regret of each of n plans; ``log_errors`` are draws of log(measured/predicted): (draws, n).

    ``fits`` says which plans fit in which draw: (draws, n). One that does not counts as the slowest that does.
    """
    times = np.log(step_s) + log_errors
    if fits is not None:
        slowest = np.where(fits, times, -np.inf).max(axis=1, keepdims=True)
        times = np.where(fits | np.isneginf(slowest), times, slowest)
    regret = np.expm1(times - times.min(axis=1, keepdims=True))
    columns = zip(regret.mean(0).tolist(), np.quantile(regret, QUANTILE, axis=0).tolist(), strict=True)
    return [Regret(mean, p80) for mean, p80 in columns]


def axes_above_one(plans: PlanArrays) -> Ints:
    """Return the number of axes above 1 of every plan."""
    return np.asarray(np.sum([getattr(plans, axis) > 1 for axis in AXES], axis=0), dtype=np.int64)


def recommended_order(
    found: list[Regret], axes: Floats | Ints, departures: Floats, total_bytes: Floats, step_s: Floats
) -> Ints:
    """Return the order of n plans, the recommended one first; ``axes`` are the numbers of axes above 1."""
    p80 = np.array([regret.p80 for regret in found])
    close = p80 <= p80.min(initial=np.inf) + CLOSE
    keys = [np.where(close, key, 0.0) for key in (axes, departures, total_bytes)]
    return np.lexsort((step_s, p80, *reversed(keys), ~close))
