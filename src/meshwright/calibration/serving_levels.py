"""Learn levels of served models from runs, and predict what they gain on runs that were left out."""

from collections.abc import Callable

import numpy as np

from meshwright.calibration.level_estimate import Floats, Prior, level_estimate
from meshwright.calibration.run_errors import RunErrors
from meshwright.cost.serving.levels import METRICS, Effect, Effects, Group, Metric, Spreads, spread_in

Before = Callable[[Group, Metric], float]
"""The level of a group before its runs."""


def no_level(_: Group, __: Metric) -> float:
    """Return the level of a group of which nothing is known."""
    return 0.0


def learned_levels(errors: RunErrors, spreads: Spreads, before: Before = no_level) -> dict[Group, Effects]:
    """Return the levels of all groups of some runs."""
    return {
        group: effects
        for group, runs in errors.members().items()
        if (effects := _of_group(errors.take(runs), group, spreads, before))
    }


def _of_group(errors: RunErrors, group: Group, spreads: Spreads, before: Before) -> Effects:
    found: dict[Metric, Effect] = {}
    for metric in METRICS:
        values = errors.of(metric)
        known = np.isfinite(values)
        if known.any():
            scales = _scales(errors, group, metric, spreads)
            prior = Prior(before(group, metric), spread_in(spreads, metric, group.engine, False).between)
            found[metric] = level_estimate(values[known], scales[known], prior)
    return found


def _scales(errors: RunErrors, group: Group, metric: Metric, spreads: Spreads) -> Floats:
    one, two = (spread_in(spreads, metric, group.engine, pools).scale for pools in (False, True))
    return np.where(errors.disaggregated, two, one)


def left_out_levels(errors: RunErrors, spreads: Spreads, before: Before = no_level) -> list[Effects]:
    """Return the level of each run from the other runs of its group; alone in it, the one of before."""
    found: list[Effects] = [{} for _ in errors.groups]
    for group, runs in errors.members().items():
        for place, run in enumerate(runs):
            found[run] = _of_group(errors.take(np.delete(runs, place)), group, spreads, before)
    return found
