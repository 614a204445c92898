"""Simulate trainings of a chosen plan, and count in how many of them all limits hold.

Speed, memory, price and failures are drawn anew, with random numbers of their own: the product's equally spaced
quantiles and its formulas of goodput are not used. Only the definitions of the distributions are the product's: the
covariance of the constants and the response of the step time to them, the widths of the other errors, the offers, the
count of failures. Failures are played one by one (``scripts/simulated_trainings.py``).
"""

from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from simulated_trainings import played_days

from meshwright.cost.plan_report import as_array
from meshwright.cost.uncertainty.constant_draws import ConstantDraws, constant_draws
from meshwright.cost.uncertainty.constants_error import log_responses
from meshwright.cost.uncertainty.interval import QUANTILE
from meshwright.cost.uncertainty.memory_error import memory_room
from meshwright.cost.uncertainty.step_error import step_error
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import RankedCluster
from meshwright.plans.forms.conversion import expand

COUNT = 10_000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Simulated:
    """Trainings that were played: days and dollars of each, and in which the plan fits."""

    days: Floats
    usd: Floats | None
    fits: NDArray[np.bool_]
    power_kw: float | None

    def share_within(self, limits: Limits) -> float:
        """Return the share of trainings that fit and keep all limits."""
        kept = self.fits.copy()
        if limits.deadline_days is not None:
            kept &= self.days <= limits.deadline_days
        if limits.budget_usd is not None:
            kept &= False if self.usd is None else self.usd <= limits.budget_usd
        if limits.power_kw is not None:
            kept &= self.power_kw is not None and self.power_kw <= limits.power_kw
        return float(kept.mean())


def simulated(cluster: RankedCluster, key: str, count: int = COUNT) -> Simulated:
    """Play ``count`` trainings of a cluster's plan; ``key`` gives them random numbers of their own."""
    assert cluster.step_s is not None, "it was searched"
    assert cluster.report is not None, "it was searched"
    course = cluster.course
    draw = np.random.default_rng(crc32(f"{key} {course.setting.model.name} {cluster.offer.on}".encode()))
    step_s = course.slowdown * cluster.step_s * np.exp(drawn_log_errors(cluster, draw, count))
    room = memory_room(cluster.report.memory_bytes["total"], course.setting)
    fits = draw.standard_normal(count) <= room
    days = played_days(course, step_s, draw)
    price, usd = course.setting.cluster.pool.usd_per_device_hour, None
    if price is not None:
        paid = draw.choice(np.array(price.offers or (price.value,)), count)
        usd = days * 24 * course.devices_paid * paid
    return Simulated(days, usd, fits, course.power_kw)


def drawn_log_errors(cluster: RankedCluster, draw: np.random.Generator, count: int) -> Floats:
    """Return draws of log(measured/predicted step time), (count,): of all constants together, and of the rest."""
    course = cluster.course
    if course.terms.assumed.assumes_speed:
        return np.zeros(count)
    assert cluster.plan is not None, "it was searched"
    setting = course.setting
    plans = as_array(expand(cluster.plan, setting.model.architecture), setting)
    known = constant_draws()
    # Normal vectors with the covariance of the table, whose mean is zero.
    mixed = draw.standard_normal((count, len(known.log_factors))) @ known.log_factors
    constants = ConstantDraws(known.names, mixed / np.sqrt(len(known.log_factors)), known.around)
    parts = step_error(setting).parts
    rest = parts.sigma * parts.quantile / QUANTILE * draw.standard_normal(count)
    return np.asarray(log_responses(plans, setting, constants)[:, 0] + rest, dtype=np.float64)
