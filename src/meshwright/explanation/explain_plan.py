"""Explain a plan: its prediction by parts, its neighbours, its rivals, and its tipping points."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from meshwright.cost.closed_form.evaluate_plans import evaluate, seconds_by_part
from meshwright.explanation.best_alternative import BestPlanTest
from meshwright.explanation.breakdown import CostBreakdown
from meshwright.explanation.cluster_resources import device_memory, rates, work
from meshwright.explanation.device_count_changes import changed_device_counts
from meshwright.explanation.explanation_result import Explanation
from meshwright.explanation.memory_tipping_points import MOST, Field, memory_tipping_points
from meshwright.explanation.one_step_alternatives import choices
from meshwright.explanation.plan_difference import (
    USUAL,
    ExplainedPlan,
    PlanDifference,
    legal_plan,
    plan_difference,
)
from meshwright.explanation.prediction_parts import forecast_at
from meshwright.explanation.schedule_alternatives import schedule_alternatives
from meshwright.explanation.sensitivity import sensitivities
from meshwright.explanation.tipping_points import TippingPoint, rate_tipping_points
from meshwright.explanation.workload_tipping_points import (
    RescaledPlan,
    changed_workloads,
    workload_tipping_points,
)
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.resolve import Resolved
from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.algorithms.time_memory_front import time_memory_front
from meshwright.verbs.plan.search_space import search, search_scope

Progress = Callable[[str, float], None]
RIVALS = 3


def explained(resolved: Resolved, progress: Progress) -> Explanation:
    """Everything about a plan. Raises InputError where predicting it would take minutes."""
    subject = ExplainedPlan.of(resolved)
    spent = CostBreakdown.of(subject)
    progress("its neighbours", 0.1)
    around = choices(subject)
    progress("other schedules", 0.2)
    schedule = schedule_alternatives(subject)
    progress("all plans", 0.3)
    found = searched(subject.setting)
    others = tuple(_rivals(subject, found))
    besides = [*around, *(other for _, other in schedule.others)]
    progress("rates of the cluster", 0.5)
    answers = tuple(sensitivities(subject, list(rates(subject.setting))))
    works = {one.name: changed_workloads(subject, one) for one in work(subject.setting)}
    contest = BestPlanTest.of(subject, found, besides) if subject.forecast.fits else None
    holds = contest is not None and contest.holds
    return Explanation(
        subject=subject,
        spent=spent,
        sensitivities=answers,
        works={name: tuple(tries) for name, tries in works.items()},
        choices=tuple(around),
        schedule=schedule,
        rivals=others,
        feasible=len(found.ranking),
        holds=holds,
        turns=(
            *(_rate_turns(contest, progress) if contest else ()),
            *_other_turns(subject, besides, works, subject if holds else _best(others), progress),
        ),
        time_memory=time_memory_front(found, subject.header),
        other_devices=tuple(changed_device_counts(subject)),
    )


def searched(setting: Setting) -> RankedPlans:
    """All plans of a setting that ``plan`` would search."""
    return search(replace(search_scope({}, None, RIVALS, setting), whole=True), setting)[1]


def _rivals(subject: ExplainedPlan, found: RankedPlans) -> list[PlanDifference]:
    """Return the best plans that were found and differ from the subject."""
    if not len(found.ranking):
        return []
    rows = np.array(found.top(RIVALS + 1))
    plans = found.plans.take(rows)
    estimates, parts = evaluate(plans, subject.setting), seconds_by_part(plans, subject.setting)
    header = subject.header.model_copy(update={"gather": None})
    others = []
    for at, row in enumerate(rows.tolist()):
        plan = legal_plan(short_plan(found.plans, row, header), USUAL, subject.setting)
        assert isinstance(plan, Resolved), plan
        others.append(plan_difference(subject, plan, forecast_at(estimates, parts, at)))
    return [other for other in others if other.changes][:RIVALS]


def _best(others: Sequence[PlanDifference]) -> ExplainedPlan | None:
    """Return the best plan of a search as a subject; None where none fits."""
    quickest = min(others, key=lambda other: other.forecast.step_s, default=None)
    return None if quickest is None else ExplainedPlan.of(quickest.resolved)


def _rate_turns(contest: BestPlanTest, progress: Progress) -> Iterator[TippingPoint]:
    """Where rates of the cluster change the answer."""
    for resource in rates(contest.subject.setting):
        progress(resource.words, 0.6)
        yield from rate_tipping_points(contest, resource)


def _other_turns(
    subject: ExplainedPlan,
    besides: Sequence[PlanDifference],
    works: Mapping[str, Sequence[RescaledPlan]],
    best: ExplainedPlan | None,
    progress: Progress,
) -> Iterator[TippingPoint]:
    """Where memory, batch and sequence length change the answer."""
    progress("device memory", 0.8)
    roomy = searched(device_memory(subject.setting).scaled(MOST))
    yield from memory_tipping_points(Field.of(subject, roomy, besides))
    for name, tries in works.items():
        progress(name.replace("_", " "), 0.9)
        yield from workload_tipping_points(subject, tries, best, searched)
