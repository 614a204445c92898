"""Order the plans of a search by recommendation, with the regret of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from meshwright.cost.uncertainty.features_error import log_errors
from meshwright.cost.uncertainty.memory_error import fits_in_draws
from meshwright.cost.uncertainty.plan_features import plan_features
from meshwright.cost.uncertainty.regret import (
    MOST_COMPARED,
    Floats,
    Ints,
    Regret,
    axes_above_one,
    recommended_order,
    regrets,
)
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.defaults import departures
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.stage_rebalancing import RebalancedPlan
from meshwright.verbs.plan.proposal import Proposal

Recommend = Literal["robust", "fastest"]
RECOMMENDS: tuple[Recommend, ...] = ("robust", "fastest")
REACH = 1.25
"""Plans that take longer than this times the fastest are not recommended."""
OF_EACH = 4
"""Plans with the same features that are compared, the fastest ones."""


@dataclass(frozen=True, slots=True)
class Recommended:
    """Rows of the plans to show, the recommended one first, and of the ``fastest``; the regret by row."""

    staged: RebalancedPlan
    rows: tuple[int, ...]
    fastest: int
    regret: Mapping[int, Regret]


def recommended(
    staged: RebalancedPlan,
    setting: Setting,
    recommend: Recommend,
    shown: int,
    responses: Floats | None = None,
) -> Recommended:
    """Return the found plans in the order of the recommendation.

    ``responses``: draws of errors that come from constants, of the ``compared_rows``; None: they are drawn here.
    """
    fastest = int(staged.found.ranking[0])
    found, regret = _with_regrets(staged.found, setting, recommend, shown, responses)
    return Recommended(replace(staged, found=found), tuple(found.top(shown)), fastest, regret)


def _with_regrets(
    found: RankedPlans, setting: Setting, recommend: Recommend, shown: int, responses: Floats | None
) -> tuple[RankedPlans, Mapping[int, Regret]]:
    """Return the plans in the order of the recommendation, and the regret by row."""
    rows = compared_rows(found, setting, shown)
    if not len(rows):
        return found, {}
    plans, step_s = found.plans.take(rows), found.step_s[rows]
    errors, total_bytes = log_errors(plans, setting, responses), found.total_bytes[rows]
    regret = regrets(step_s, errors, fits_in_draws(total_bytes, setting, len(errors)))
    by_row = dict(zip(rows.tolist(), regret, strict=True))
    if recommend == "fastest":
        return found, by_row
    order = recommended_order(regret, axes_above_one(plans), departures(plans, setting), total_bytes, step_s)
    others = found.ranking[~np.isin(found.ranking, rows)]
    return replace(found, ranking=np.concatenate([rows[order], others])), by_row


def compared_rows(found: RankedPlans, setting: Setting, shown: int) -> Ints:
    """Return the rows of the plans to compare, the fastest first.

    These are the fastest plans of each set of features, and the ``shown`` best that differ in what matters.
    """
    times = found.step_s[found.ranking]
    near = found.ranking[times <= REACH * times.min(initial=np.inf)]
    near = near[np.argsort(found.step_s[near], kind="stable")]
    kinds = _feature_sets(found.plans.take(near), setting)
    order = np.argsort(kinds, kind="stable")
    place = np.empty(len(kinds), dtype=np.int64)
    place[order] = np.arange(len(kinds)) - np.searchsorted(kinds[order], kinds[order])
    fastest = near[place < OF_EACH][:MOST_COMPARED]
    return np.array(list(dict.fromkeys([*fastest.tolist(), *found.top(shown)])), dtype=np.int64)


def _feature_sets(plans: PlanArrays, setting: Setting) -> Ints:
    """Return a number for each plan, equal where the features are."""
    masks = list(plan_features(plans, setting).values()) if len(plans) else []
    if not masks:
        return np.zeros(len(plans), dtype=np.int64)
    return distinct([mask.astype(np.int64) for mask in masks]).inverse


def in_new_order(
    before: Sequence[Proposal], after: Sequence[Proposal], recommend: Recommend
) -> tuple[Proposal, ...]:
    """Return proposals some of whose step times have changed since they were ordered, in the order for the new ones."""
    ratios = [new.report.step_time_s / old.report.step_time_s for old, new in zip(before, after, strict=True)]
    if all(ratio == 1 for ratio in ratios):
        return tuple(after)
    scaled = [
        replace(one, regret=one.regret and one.regret.scaled(ratio))
        for one, ratio in zip(after, ratios, strict=True)
    ]
    if recommend == "fastest" or any(one.regret is None for one in scaled):
        return tuple(sorted(scaled, key=lambda one: one.report.step_time_s))
    return tuple(sorted(scaled, key=lambda one: one.regret.p80 if one.regret else np.inf))
