"""Estimate the variance between groups and within groups of serving runs, robust against outliers.

``scale`` is the median absolute difference of runs from the level of the other runs of their group, over .6745;
``rest`` its 80 % quantile over 1.28; ``unknown`` that of the errors themselves; each by engine and pools. ``between``
is the root mean square of the groups' levels with their doubt, those beyond 2 of it counted as 2. Scales and levels
depend on each other and are iterated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from meshwright.calibration.level_estimate import FREEDOM, Floats, Prior, level_estimate
from meshwright.calibration.run_errors import RunErrors
from meshwright.cost.serving.levels import ANY, METRICS, Effect, Metric, Spread, SpreadKey, Spreads
from meshwright.cost.uncertainty.interval import QUANTILE

MEDIAN = 0.6745
"""Standard deviations from the middle of a normal distribution to its 75 % quantile."""
FEWEST_RUNS, FEWEST_GROUPS = 20, 2
"""An engine with fewer runs or groups has no spreads of its own."""
FAR = 2.0
STEPS = 8
START = 0.2


def fit_spreads(errors: RunErrors) -> Spreads:
    """Return the spreads of each metric by engine and pools, and of any engine: the widest of all."""
    found: dict[SpreadKey, Spread] = {}
    for metric in METRICS:
        known = errors.take(np.flatnonzero(np.isfinite(errors.of(metric))))
        if not known.groups:
            continue
        own = {SpreadKey(metric, *kind): spread for kind, spread in _of_metric(known, metric)}
        if own:
            own[SpreadKey(metric, ANY, ANY)] = _widest([*own.values()])
        found |= own
    return found


def _widest(spreads: Sequence[Spread]) -> Spread:
    return Spread(*(max(getattr(one, field.name) for one in spreads) for field in fields(Spread)))


def kinds_of(errors: RunErrors) -> NDArray[np.str_]:
    """Return engine and pools of each run as one text."""
    pools = np.where(errors.disaggregated, "two", "one")
    return np.array([f"{group.engine} {pool}" for group, pool in zip(errors.groups, pools, strict=True)])


def _of_metric(known: RunErrors, metric: Metric) -> Iterator[tuple[list[str], Spread]]:
    """Yield the spreads of engines in one pool or in two, of runs that all have the metric."""
    values, kinds, members = known.of(metric), kinds_of(known), list(known.members().values())
    scales, between, rests = np.full(len(values), START), START, np.zeros(0)
    for _ in range(STEPS):
        effects = [level_estimate(values[runs], scales[runs], Prior(0.0, between)) for runs in members]
        rests = np.full(len(values), np.nan)
        for runs, effect in zip(members, effects, strict=True):
            if len(runs) > 1:
                rests[runs] = values[runs] - _levels_of_others(values[runs], scales[runs], effect, between)
        between = _between(effects, between)
        for kind in np.unique(kinds):
            enough = _is_enough(known, kinds == kind)
            scales[kinds == kind] = _quantile(rests[kinds == kind] if enough else rests, 0.5) / MEDIAN
    for kind in np.unique(kinds):
        chosen = kinds == kind
        if _is_enough(known, chosen):
            yield (
                kind.split(),
                Spread(
                    between=between,
                    scale=float(scales[chosen][0]),
                    rest=_quantile(rests[chosen], 0.8) / QUANTILE,
                    unknown=_quantile(values[chosen], 0.8) / QUANTILE,
                ),
            )


def _is_enough(errors: RunErrors, chosen: NDArray[np.bool_]) -> bool:
    groups = {group for group, of_kind in zip(errors.groups, chosen, strict=True) if of_kind}
    return bool(chosen.sum() >= FEWEST_RUNS) and len(groups) >= FEWEST_GROUPS


def _levels_of_others(values: Floats, scales: Floats, effect: Effect, between: float) -> Floats:
    """Return for each run the level of the other runs of its group, with the weights of all."""
    exact = scales**-2
    weights = exact * (FREEDOM + 1) / (FREEDOM + (values - effect.log_factor) ** 2 * exact)
    total, moment = between**-2 + weights.sum(), (weights * values).sum()
    return (moment - weights * values) / (total - weights)


def _between(effects: list[Effect], before: float) -> float:
    levels = np.array([effect.log_factor for effect in effects])
    doubts = np.array([effect.doubt for effect in effects])
    return float(np.sqrt(np.mean(np.minimum(levels**2, (FAR * before) ** 2) + doubts**2)))


def _quantile(values: Floats, share: float) -> float:
    return float(np.quantile(np.abs(values[np.isfinite(values)]), share))
