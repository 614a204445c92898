"""Search the plans of several clusters together, in shared arrays where they differ only in devices and batch.

The space, its bounds, the scores and the draws of errors of all of them are computed at once, because most of the time
of a short array goes into its fixed costs. What is found of each cluster is what a search of it alone finds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.uncertainty.constants_error import log_responses
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.shared_evaluation import ScoredRows, joined_plans, run_together
from meshwright.search.space.plan_space import Space
from meshwright.search.stage_rebalancing import RebalancedPlan
from meshwright.verbs.plan.clusters.cluster_bounds import largest_of, question_groups, space_of_questions
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, plans_to_show, recommendation
from meshwright.verbs.plan.recommendation import Recommended, compared_rows, recommended
from meshwright.verbs.plan.search_space import (
    PrunedSpace,
    Scope,
    has_closed_form,
    pruned_space,
    scoring,
    search_steps,
)

Asked = tuple[PlanRequest, Scope, Setting]


def search_clusters(asked: Sequence[Asked]) -> list[Recommended]:
    """Return the recommended plans of each cluster, on all of which some plan fits."""
    found: dict[int, Recommended] = {}
    for together in question_groups([(scope, setting) for _, scope, setting in asked]):
        found |= zip(together, _search_sizes([asked[index] for index in together]), strict=True)
    return [found[index] for index in range(len(asked))]


def _search_sizes(asked: Sequence[Asked]) -> list[Recommended]:
    """Search questions that differ only in devices and batch."""
    questions = [(scope, setting) for _, scope, setting in asked]
    _, largest = largest_of(questions)
    whole = space_of_questions(questions)
    cheap = has_closed_form(whole)
    pruned = pruned_space(whole if cheap.all() else whole.only(cheap), largest)
    bounds = [(each.step_s, each.total_bytes) for each in pruned.bounds(pruned.left)]
    searches = []
    for scope, setting in questions:
        numbers = setting.cluster.devices, setting.workload.computed_sequences
        own = whole.of_one(whole.rows_of(*numbers))
        left = _of_one(pruned.left, bounds, pruned.left.rows_of(*numbers))
        searches.append(search_steps(own, scope, setting, left))
    found = run_together(searches, scoring(largest))
    shown = [plans_to_show(question, setting) for question, _, setting in asked]
    rows = [
        compared_rows(one, setting, count)
        for one, (_, _, setting), count in zip(found, asked, shown, strict=True)
    ]
    responses = _responses(
        [one.plans.take(compared) for one, compared in zip(found, rows, strict=True)], largest
    )
    return [
        recommended(RebalancedPlan(one, {}, one), setting, recommendation(question), count, drawn)
        for one, (question, _, setting), count, drawn in zip(found, asked, shown, responses, strict=True)
    ]


def _of_one(
    left: Space, bounds: Sequence[tuple[NDArray[np.float64], ...]], rows: NDArray[np.bool_]
) -> PrunedSpace:
    """Return the part of one question, with its bounds."""
    own = [ScoredRows(step_s[rows], total[rows], np.isfinite(step_s[rows])) for step_s, total in bounds]
    return PrunedSpace(left.of_one(rows), lambda of: own)


def _responses(parts: Sequence[PlanArrays], largest: Setting) -> list[NDArray[np.float64]]:
    """Return the draws of errors that come from constants of each cluster's plans: (draws, n)."""
    every = log_responses(joined_plans(parts), largest)
    return np.split(every, np.cumsum([len(part) for part in parts])[:-1], axis=1)
