"""Estimate the parts of the error of step times from runs that were left out of the fit.

With e = log(measured/predicted), every source with the same weight and all spreads mean absolute deviations (scaled to
a normal distribution's standard deviation), which one strange run moves little:

* the run's part: the spread of e inside its group (source, model, device and number of devices);
* the group's: the spread of the groups' means inside their source;
* the stack's: the size of the sources' means.

They only share out the error beyond that of the constants, whose spread c is known for every run
(``cost/uncertainty/constants_error.py``): its size s is such that 80 % of the runs have abs(e) within the quantile of
√(c² + s²), which is what an interval is for. Before they share it out, errors are shrunk by s/√(c² + s²). Where few
sources tell s, its quantile is Student's with their number less one degrees of freedom.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import NamedTuple

import numpy as np
from left_out_fits import Floats, group_of, source_of, weighted_quantiles
from numpy.typing import NDArray

from meshwright.calibration.observations import Observation
from meshwright.cost.uncertainty.error_parts import ErrorParts
from meshwright.cost.uncertainty.interval import QUANTILE
from meshwright.cost.uncertainty.plan_features import plan_features
from meshwright.cost.uncertainty.seen_runs import models

SHARE = 0.8
NORMAL = 1.2533
"""Standard deviation of a normal distribution over its mean absolute deviation: √(π/2)."""
STUDENT = (
    3.078,
    1.886,
    1.638,
    1.533,
    1.476,
    1.440,
    1.415,
    1.397,
    1.383,
    1.372,
    1.363,
    1.356,
    1.350,
    1.345,
    1.341,
)
"""90 % quantiles of Student's t with 1, 2, … degrees of freedom."""


@dataclass(frozen=True)
class Found:
    """An observation and log(predicted/measured) of its runs, under constants that were fitted without it.

    ``constants``: the standard deviation that the doubt about these constants gives each run; ``responses`` are draws
    of it, (draws, n).
    """

    observation: Observation
    errors: Floats
    constants: Floats
    responses: Floats


class Errors(NamedTuple):
    """log(measured/predicted) of runs, and the standard deviation that the doubt about the constants gives each."""

    values: Floats
    constants: Floats

    def __len__(self) -> int:
        return len(self.values)

    def within(self, sigma: float, quantile: float) -> NDArray[np.bool_]:
        """Return the mask of the runs in the 80 % interval of an error of ``sigma`` beyond the constants'."""
        return np.asarray(np.abs(self.values) <= np.hypot(QUANTILE * self.constants, quantile * sigma))

    def shrunk(self, sigma: float) -> Floats:
        """Return what of each error is to be expected beyond that of the constants, if it has ``sigma``."""
        return np.asarray(self.values * sigma / np.maximum(np.hypot(sigma, self.constants), TINY))


Groups = Mapping[str, Sequence[Errors]]
"""Errors of every source, group by group."""
TINY = 1e-12


def joined(groups: Sequence[Errors]) -> Errors:
    """Return the errors of several groups as one."""
    return Errors(*(np.concatenate(column) for column in zip(*groups, strict=True)))


def grouped(found: Iterable[Found], of: str) -> dict[str, list[Errors]]:
    """Collect log(measured/predicted) of dense models, or of those with experts, by source and group."""
    groups: dict[tuple[str, str, str, int], list[Errors]] = {}
    for one in found:
        if models(one.observation.setting) == of:
            groups.setdefault(group_of(one.observation), []).append(Errors(-one.errors, one.constants))
    by_source: dict[str, list[Errors]] = {}
    for (source, *_), errors in sorted(groups.items()):
        by_source.setdefault(source, []).append(joined(errors))
    return by_source


def parts_of(groups: Groups, stack_is_known: bool) -> ErrorParts:
    """Return the parts of the error. With a known stack the sources' means count as groups' errors."""
    whole = whole_sigma(groups)
    shrunk = [[errors.shrunk(whole) for errors in own] for own in groups.values()]
    inside = [np.concatenate([_centred(e) for e in own if len(e) > 1] or [np.zeros(0)]) for own in shrunk]
    run = _mean_spread(inside)
    means = [np.array([e.mean() for e in own]) for own in shrunk]
    if stack_is_known:
        stack, group = 0.0, _mean_spread(means)
    else:
        stack = NORMAL * float(np.mean([abs(m.mean()) for m in means]))
        group = _mean_spread([_centred(m) for m in means if len(m) > 1])
    share = whole / max(hypot(stack, group, run), TINY)
    quantile = QUANTILE if stack_is_known else student(len(groups))
    count = sum(len(e) for own in groups.values() for e in own)
    return ErrorParts(share * stack, share * group, share * run, quantile, count, len(groups))


def whole_sigma(groups: Groups) -> float:
    """Return the standard deviation beyond the constants' with which 80 % of the runs lie in their intervals.

    A run is inside from √((e / quantile)² − c²) on: the weighted 80 % quantile of that is the answer.
    """
    sources = [joined(own) for own in groups.values()]
    beyond = [np.square(e.values / QUANTILE) - np.square(e.constants) for e in sources]
    weights = np.concatenate([np.full(len(e), 1 / len(e)) for e in sources])
    (most,) = weighted_quantiles(np.concatenate(beyond), weights, (SHARE,))
    return float(np.sqrt(max(most, 0.0)))


def student(sources: int) -> float:
    """Return the 90 % quantile for a figure that so many sources tell; the normal distribution's from 16 on."""
    freedom = max(1, sources - 1)
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else QUANTILE


def pair_parts(found: Iterable[Found]) -> ErrorParts:
    """Return the error of the ratio of two runs' times in one setting, whichever comes first.

    It is the whole one: that of the constants is not taken out.
    """
    by_source: dict[str, list[Errors]] = {}
    for one in found:
        first, second = np.triu_indices(len(one.errors), 1)
        if len(first):
            by_source.setdefault(source_of(one.observation), []).append(
                Errors(one.errors[first] - one.errors[second], np.zeros(len(first)))
            )
    count = sum(len(e) for own in by_source.values() for e in own)
    return ErrorParts(0.0, 0.0, whole_sigma(by_source), QUANTILE, count, len(by_source))


def feature_parts(found: Iterable[Found]) -> ErrorParts:
    """Return the error of one feature of a plan: of two runs in one setting each has those that the other lacks.

    The error of their ratio beyond that of the constants is shared out evenly among these.
    """
    by_source: dict[str, list[Floats]] = {}
    for one in found:
        here = one.observation
        first, second = np.triu_indices(len(one.errors), 1)
        masks = np.array(list(plan_features(here.plans, here.setting).values())).reshape(-1, len(one.errors))
        differ = (masks[:, first] != masks[:, second]).sum(0)
        first, second, differ = first[differ > 0], second[differ > 0], differ[differ > 0]
        ratio = (one.errors[first] - one.errors[second]) / QUANTILE
        constants = (one.responses[:, first] - one.responses[:, second]).std(0)
        by_source.setdefault(source_of(here), []).append((np.square(ratio) - np.square(constants)) / differ)
    sources = [np.concatenate(own) for own in by_source.values() if sum(map(len, own))]
    weights = np.concatenate([np.full(len(own), 1 / len(own)) for own in sources])
    (most,) = weighted_quantiles(np.concatenate(sources), weights, (SHARE,))
    count = sum(map(len, sources))
    return ErrorParts(0.0, 0.0, float(np.sqrt(max(most, 0.0))), QUANTILE, count, len(sources))


def _centred(errors: Floats) -> Floats:
    """Return deviations from the mean, scaled for the degree of freedom that the mean takes."""
    return (errors - errors.mean()) * np.sqrt(len(errors) / (len(errors) - 1))


def _mean_spread(of_sources: Sequence[Floats]) -> float:
    return NORMAL * float(np.mean([np.abs(errors).mean() for errors in of_sources if len(errors)]))
