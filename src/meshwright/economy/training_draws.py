"""Draws of a training: step time, memory, price, failure rate and number of failures, and what follows from them.

A draw has one error of each kind per device family, which all numbers of its devices share:

- the step time: the drawn constants of the cost model and the parts of its error (``cost/uncertainty``);
- the peak of memory, and so whether the plan fits;
- the price: one of the offers whose median it is;
- the failure rate: Gamma(n + ½) over the window in which n failures were counted (Jeffreys' prior);
- the number of failures: Poisson, with the mean at this step time and rate;
- the work that they throw away: each any part of the work between two checkpoints.

What the user gave, and what was published without offers or a count, has no spread. Repairs and restarts cost what they
cost on average; checkpoints are written as often as is best for the rate that is not drawn and the median step. Peaks
of power are not drawn.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import ceil, isfinite
from statistics import NormalDist
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.uncertainty.memory_error import memory_room
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.failure_counts import Floats, poisson_quantiles
from meshwright.economy.goodput import NOTHING
from meshwright.economy.spare_nodes import stopped_share
from meshwright.economy.training_cost import Costs, TrainingCost
from meshwright.units import DAY_S, HOUR_S

Bools = NDArray[np.bool_]
OUTSIDE = 0.1
"""Share of the draws below the low end, and above the high end, of an 80 % interval."""


@dataclass(frozen=True, slots=True)
class TrainingDraws:
    """``step_s`` of a step and ``seconds`` of all of them, infinite where failures come faster than progress.

    ``usd`` is None without a price.
    """

    course: TrainingCost
    fits: Bools
    step_s: Floats
    seconds: Floats
    usd: Floats | None

    def of(self, course: TrainingCost) -> "TrainingDraws":
        """Return the draws of the same plan for another number of tokens."""
        return _drawn(course, self.step_s, self.fits)

    def met(self, limits: Limits) -> Bools:
        """Return in which draws the plan fits and its training keeps all limits."""
        return np.asarray(np.logical_and.reduce([self.fits, *self._by_limit(limits).values()]))

    def sure(self, limits: Limits) -> float:
        """Return the probability that all limits hold."""
        return float(self.met(limits).mean())

    def missed(self, limits: Limits) -> dict[str, float]:
        """Return the share of draws in which each limit is missed, by the limit's name."""
        return {name: float(1 - kept.mean()) for name, kept in self._by_limit(limits).items()}

    def ends(self, name: str) -> tuple[float, float] | None:
        """Return the 80 % interval of a cost, by its name in ``Costs``; None where it is unknown or has no end."""
        if name == "usd":
            return None if self.usd is None else _ends(self.usd)
        ends = _ends(self.seconds)
        costs = None if ends is None else [getattr(self.course.costs_of(end), name) for end in ends]
        return None if costs is None or None in costs else (costs[0], costs[1])

    @property
    def step_ends(self) -> tuple[float, float]:
        """The 80 % interval of a step's seconds."""
        ends = _ends(self.step_s)
        assert ends is not None, "a step has an end"
        return ends

    def least_budget(self, limits: Limits) -> float | None:
        """Return the least dollars with which all other limits hold with their probability; None where none do."""
        return None if self.usd is None else self._least(self.usd, replace(limits, budget_usd=None))

    def least_deadline(self, limits: Limits) -> float | None:
        """Return the fewest days with which all other limits hold with their probability; None where none do."""
        return self._least(self.seconds / DAY_S, replace(limits, deadline_days=None))

    def _least(self, values: Floats, others: Limits) -> float | None:
        kept = np.sort(values[self.met(others)])
        needed = ceil((others.sure or 0.0) * len(values))
        return float(kept[needed - 1]) if 0 < needed <= len(kept) and isfinite(kept[needed - 1]) else None

    def costs_at(self, probability: float) -> Costs:
        """Return the costs that are not passed with a probability, each by itself."""
        seconds = float(np.quantile(self.seconds, probability, method="inverted_cdf"))
        usd = None if self.usd is None else float(np.quantile(self.usd, probability, method="inverted_cdf"))
        if not isfinite(seconds):
            return Costs(power_kw=self.course.power_kw)
        return replace(self.course.costs_of(seconds), usd=usd)

    def _by_limit(self, limits: Limits) -> dict[str, Bools]:
        days, kept = self.seconds / DAY_S, {}
        if limits.deadline_days is not None:
            kept["deadline"] = days <= limits.deadline_days
        if limits.budget_usd is not None:
            kept["budget"] = np.zeros(len(days), bool) if self.usd is None else self.usd <= limits.budget_usd
        if limits.power_kw is not None:
            kept["power"] = np.full(len(days), limits.powered(Costs(power_kw=self.course.power_kw)))
        return kept


def training_draws(
    course: TrainingCost, step_s: float, log_errors: Floats, total_bytes: float
) -> TrainingDraws:
    """Return the draws of a plan's training.

    ``log_errors`` are draws of the logarithm of its step time over the predicted one, ``step_s``; an assumed speed has
    no spread.
    """
    if course.terms.assumed.assumes_speed:
        log_errors = np.zeros_like(log_errors)
    family = course.setting.cluster.pools[0].device.id
    room = memory_room(total_bytes, course.setting)
    fits = np.asarray(uniforms(f"{family} memory", len(log_errors)).normal <= room)
    return _drawn(course, course.slowdown * step_s * np.exp(log_errors), fits)


def _drawn(course: TrainingCost, step_s: Floats, fits: Bools) -> TrainingDraws:
    family, count = course.setting.cluster.pools[0].device.id, len(step_s)
    seconds = _seconds(course, step_s, family)
    price = course.setting.cluster.pool.usd_per_device_hour
    usd = None
    if price is not None:
        offers = np.array(price.offers or (price.value,))
        drawn = offers[(uniforms(f"{family} price", count).probability * len(offers)).astype(np.int64)]
        usd = seconds / HOUR_S * course.devices_paid * drawn
    return TrainingDraws(course, fits, step_s, seconds, usd)


@dataclass(frozen=True, slots=True)
class Uniforms:
    """Equally spaced probabilities in a random order, and the quantiles of a normal distribution at them."""

    probability: Floats
    normal: Floats


@cache
def uniforms(name: str, count: int) -> Uniforms:
    """Return draws that are always the same for a name."""
    spaced = (np.arange(count) + 0.5) / count
    order = np.random.default_rng(crc32(name.encode())).permutation(count)
    return Uniforms(spaced[order], np.array([NormalDist().inv_cdf(each) for each in spaced])[order])


def _seconds(course: TrainingCost, step_s: Floats, family: str) -> Floats:
    work_s, found = course.steps * step_s, course.outages
    if found is None:
        return work_s
    mtbf_s = found.mtbf_s / rate_draws(found.events, family, len(step_s))
    interval_s = np.maximum(found.planned_work_s(float(np.median(step_s))), step_s)
    pause_s = np.array(list(map(found.pause_s, step_s.tolist(), interval_s.tolist())))
    useful = np.array(list(map(found.useful_at, step_s.tolist(), interval_s.tolist(), mtbf_s.tolist())))
    running = 1 - stopped_share(mtbf_s, found.repair_s, found.spare_nodes)
    ends = running * useful > NOTHING
    expected_s = np.where(ends, work_s / np.where(ends, running * useful, 1.0), np.inf)
    without_s = work_s * (1 + pause_s / interval_s)
    mean = np.where(ends, expected_s * running / mtbf_s, 0.0)
    drawn = uniforms(f"{family} failures", len(step_s))
    counts = poisson_quantiles(drawn.probability, drawn.normal, mean)
    each_s = np.divide(expected_s - without_s, mean, out=np.zeros_like(mean), where=mean > 0)
    segment_s = np.where(counts > 0, interval_s, 0.0) + pause_s
    thrown_s = segment_s * _beyond_half(counts, uniforms(f"{family} thrown work", len(step_s)).normal)
    return np.where(ends, without_s + counts * each_s + thrown_s, np.inf)


def _beyond_half(counts: Floats, normal: Floats) -> Floats:
    """Return draws of a sum of ``counts`` uniform numbers from −½ to ½: normal, within the ends of the sum."""
    return np.clip(np.sqrt(counts / 12) * normal, -counts / 2, counts / 2)


def rate_draws(events: int | None, family: str, count: int = 4096) -> Floats:
    """Return drawn failure rates of a family over the one that is known; ones where nobody counted failures."""
    if not events:
        return np.ones(count)
    draw = np.random.default_rng(crc32(f"{family} rate".encode()))
    return draw.standard_gamma(events + 0.5, count) / events


def _ends(values: Floats) -> tuple[float, float] | None:
    low, high = np.quantile(values, (OUTSIDE, 1 - OUTSIDE), method="inverted_cdf")
    return (float(low), float(high)) if np.isfinite(high) else None
