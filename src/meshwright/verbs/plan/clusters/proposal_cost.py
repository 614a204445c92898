"""The training cost of a proposed plan, in its report and as draws."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from meshwright.cost.plan_report import as_array
from meshwright.cost.uncertainty.step_draws import draws_of_step_errors, log_step_errors
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import Offer
from meshwright.economy.cluster_ranking import RankedCluster, nearest
from meshwright.economy.limits_to_tokens import most_steps, most_steps_surely
from meshwright.economy.recovery_policies import whole_copies
from meshwright.economy.report_with_training_cost import report_with_training_cost
from meshwright.economy.training_cost import TrainingCost
from meshwright.economy.training_draws import TrainingDraws, training_draws, uniforms
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.result import Report
from meshwright.verbs.plan.proposal import Proposal


@dataclass(frozen=True, slots=True)
class PricedAnswer:
    """A cluster with the plan that was chosen on it, which is the one at ``place`` of its candidates.

    ``predicted`` is the plan's report before anything is assumed of it.
    """

    standing: RankedCluster
    place: int
    proposal: Proposal
    predicted: Report


def draws_of_plan(course: TrainingCost, plan: LongPlan, report: Report) -> TrainingDraws:
    """Return draws of the training of a predicted plan."""
    family = course.setting.cluster.pools[0].device.id
    normal = uniforms(f"{family} step", draws_of_step_errors()).normal
    errors = log_step_errors(as_array(plan, course.setting), course.setting, normal)[:, 0]
    return training_draws(course, report.step_time_s, errors, report.memory_bytes["total"])


def draws_of_proposal(course: TrainingCost, one: Proposal) -> TrainingDraws:
    """Return draws of a proposed plan's training."""
    return draws_of_plan(course, _long(course, one), one.report)


def _long(course: TrainingCost, one: Proposal) -> LongPlan:
    return one.long or expand(one.plan, course.setting.model.architecture)


def priced_answer(
    offer: Offer, course: TrainingCost, candidates: Iterable[Proposal], limits: Limits
) -> PricedAnswer:
    """Return a cluster with the first candidate that keeps the limits; where none does, with the nearest.

    Candidates are the recommended plans and then the fastest; none is asked for after the one that is chosen.
    """
    missed: list[PricedAnswer] = []
    for place, one in enumerate(candidates):
        priced = _priced(offer, course, one, place)
        if priced.standing.holds(limits):
            return priced
        missed.append(priced)
    closest = nearest([one.standing for one in missed], limits)
    return next(one for one in missed if one.standing is closest)


def with_full_report(one: PricedAnswer, full: Proposal) -> PricedAnswer:
    """Return it with the reasons, remarks and advice of the same plan's full proposal."""
    assert one.standing.draws is not None, "it was searched"
    course = one.standing.course
    copies = whole_copies(_long(course, full))
    report = report_with_training_cost(full.report, course, one.standing.draws, copies)
    return replace(one, proposal=replace(full, report=report), predicted=full.report)


def with_most_tokens(one: PricedAnswer, limits: Limits) -> PricedAnswer:
    """Return the plan with the most tokens that keep the limits; with those of one step where none do."""
    draws, course = one.standing.draws, one.standing.course
    assert draws is not None, "it was searched"
    step_s = one.predicted.step_time_s
    steps = most_steps(course, step_s, limits) if limits.sure is None else most_steps_surely(draws, limits)
    longer = course.with_steps(max(1, steps))
    redrawn = draws.of(longer)
    report = report_with_training_cost(
        one.predicted, longer, redrawn, whole_copies(_long(longer, one.proposal))
    )
    standing = replace(one.standing, course=longer, report=report, draws=redrawn)
    return replace(one, standing=standing, proposal=replace(one.proposal, report=report))


def with_tokens_at_most(standing: RankedCluster, limits: Limits) -> RankedCluster:
    """Return a cluster that was not searched with no fewer tokens than any plan of it can train on."""
    if standing.step_s is None:
        return standing
    steps = most_steps(standing.course, standing.step_s, limits)
    return replace(standing, course=standing.course.with_steps(max(1, steps)))


def within_limits(
    first: PricedAnswer, candidates: Iterable[Proposal], limits: Limits
) -> tuple[Proposal, ...]:
    """Return all plans of one cluster that keep the limits, the chosen one first."""
    chosen, offer, course = first.proposal, first.standing.offer, first.standing.course
    priced = (_priced(offer, course, one, place) for place, one in enumerate(candidates))
    kept = (one.proposal for one in priced if one.standing.holds(limits))
    return chosen, *(one for one in kept if one.plan != chosen.plan)


def _priced(offer: Offer, course: TrainingCost, one: Proposal, place: int) -> PricedAnswer:
    course = course.of_plan(one.report)
    draws = draws_of_proposal(course, one)
    report = report_with_training_cost(one.report, course, draws, whole_copies(_long(course, one)))
    step_s = one.report.step_time_s
    standing = RankedCluster(offer, course, "searched", step_s, one.plan, report=report, draws=draws)
    return PricedAnswer(standing, place, replace(one, report=report), one.report)
