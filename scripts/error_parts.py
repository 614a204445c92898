"""Estimate the parts of the error of step times from runs that were left out of the fit.

With e = log(measured/predicted), every source with the same weight and all spreads mean absolute deviations (scaled to
a normal distribution's standard deviation), which one strange run moves little:

* the run's part: the spread of e inside its group (source, model, device and number of devices);
* the group's: the spread of the groups' means inside their source;
* the stack's: the size of the sources' means.

They only share out the whole error; its size is that of the weighted 80 % quantile of abs(e), which is what an interval
is for. Where few sources tell it, its quantile is Student's with their number less one degrees of freedom.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np
from left_out_fits import Floats, group_of, source_of, weighted_quantiles

from meshwright.calibration.observations import Observation
from meshwright.cost.uncertainty.error_parts import ErrorParts
from meshwright.cost.uncertainty.interval import QUANTILE
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
Groups = Mapping[str, Sequence[Floats]]
"""Errors of every source, group by group."""


@dataclass(frozen=True)
class Found:
    """An observation and log(predicted/measured) of its runs, under constants that were fitted without it."""

    observation: Observation
    errors: Floats


def grouped(found: Iterable[Found], of: str) -> dict[str, list[Floats]]:
    """Collect log(measured/predicted) of dense models, or of those with experts, by source and group."""
    groups: dict[tuple[str, str, str, int], list[Floats]] = {}
    for one in found:
        if models(one.observation.setting) == of:
            groups.setdefault(group_of(one.observation), []).append(-one.errors)
    by_source: dict[str, list[Floats]] = {}
    for (source, *_), errors in sorted(groups.items()):
        by_source.setdefault(source, []).append(np.concatenate(errors))
    return by_source


def parts_of(groups: Groups, stack_is_known: bool) -> ErrorParts:
    """Return the parts of the error. With a known stack the sources' means count as groups' errors."""
    inside = [
        np.concatenate([_centred(e) for e in own if len(e) > 1] or [np.zeros(0)]) for own in groups.values()
    ]
    run = _mean_spread(inside)
    means = [np.array([e.mean() for e in own]) for own in groups.values()]
    if stack_is_known:
        stack, group = 0.0, _mean_spread(means)
    else:
        stack = NORMAL * float(np.mean([abs(m.mean()) for m in means]))
        group = _mean_spread([_centred(m) for m in means if len(m) > 1])
    share = whole_sigma(groups) / hypot(stack, group, run)
    quantile = QUANTILE if stack_is_known else student(len(groups))
    count = sum(len(e) for own in groups.values() for e in own)
    return ErrorParts(share * stack, share * group, share * run, quantile, count, len(groups))


def whole_sigma(groups: Groups) -> float:
    """Return the standard deviation of a normal distribution with the errors' 80 % quantile of abs(e)."""
    values = np.concatenate([np.abs(np.concatenate(own)) for own in groups.values()])
    weights = np.concatenate([np.full(sum(map(len, own)), 1 / sum(map(len, own))) for own in groups.values()])
    (most,) = weighted_quantiles(values, weights, (SHARE,))
    return most / QUANTILE


def student(sources: int) -> float:
    """Return the 90 % quantile for a figure that so many sources tell; the normal distribution's from 16 on."""
    freedom = max(1, sources - 1)
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else QUANTILE


def pair_parts(found: Iterable[Found]) -> ErrorParts:
    """Return the error of the ratio of two runs' times in one setting, whichever comes first."""
    by_source: dict[str, list[Floats]] = {}
    for one in found:
        first, second = np.triu_indices(len(one.errors), 1)
        if len(first):
            by_source.setdefault(source_of(one.observation), []).append(
                one.errors[first] - one.errors[second]
            )
    count = sum(len(e) for own in by_source.values() for e in own)
    return ErrorParts(0.0, 0.0, whole_sigma(by_source), QUANTILE, count, len(by_source))


def _centred(errors: Floats) -> Floats:
    """Return deviations from the mean, scaled for the degree of freedom that the mean takes."""
    return (errors - errors.mean()) * np.sqrt(len(errors) / (len(errors) - 1))


def _mean_spread(of_sources: Sequence[Floats]) -> float:
    return NORMAL * float(np.mean([np.abs(errors).mean() for errors in of_sources if len(errors)]))
