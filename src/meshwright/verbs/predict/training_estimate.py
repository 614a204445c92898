"""Add goodput and the cost of a whole training to a plan's prediction."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from meshwright.cluster.catalog_prices import ON_DEMAND
from meshwright.economy.recovery_policies import whole_copies
from meshwright.economy.report_with_assumptions import slowdown_to
from meshwright.economy.report_with_training_cost import report_with_training_cost
from meshwright.economy.tokens_and_assumptions import parse_terms
from meshwright.economy.training_cost import TrainingCost
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.verbs.plan.clusters.proposal_cost import draws_of_plan
from meshwright.verbs.predict.predict_plan import predicted
from meshwright.verbs.predict.predicted_churn import with_churn
from meshwright.verbs.predict.sharding_exchanges import with_sharding_exchanges


def report_with_training_estimate(
    load: Callable[[], Resolved],
    tokens: str | int | None,
    assume: Iterable[str],
    price: str = ON_DEMAND,
) -> Report:
    """Return the Report of the plan that ``load`` reads. Raise InputError with every problem."""
    problems: list[Problem] = []
    terms = attempted(lambda: parse_terms(tokens, assume, price), problems)
    resolved = attempted(load, problems)
    if terms is not None and resolved is not None:
        problems += terms.unknown_families([resolved.setting.cluster])
    if problems or terms is None or resolved is None:
        raise InputError(problems)
    setting = replace(resolved.setting, cluster=terms.on(resolved.setting.cluster))
    course = TrainingCost.of(setting, terms)
    resolved = replace(resolved, setting=setting)
    report = with_sharding_exchanges(predicted(resolved), resolved)
    if course.terms.assumed.mfu is not None:
        course = replace(course, slowdown=slowdown_to(report, course.terms.assumed.mfu))
    course = course.of_plan(report)
    draws, copies = draws_of_plan(course, resolved.long, report), whole_copies(resolved.long)
    found = report_with_training_cost(report, course, draws, copies)
    found = with_churn(found, resolved, course.terms.assumed, course.slowdown)
    return replace(found, remarks=(*found.remarks, *terms.remarks([setting.cluster])))
