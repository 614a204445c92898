"""Add goodput and the cost of a whole training to a plan's prediction."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from meshwright.economy.report_with_training_cost import report_with_training_cost
from meshwright.economy.tokens_and_assumptions import parse_terms
from meshwright.economy.training_cost import TrainingCost
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.resolve import Resolved
from meshwright.result import Report
from meshwright.verbs.predict.predict_plan import predicted


def report_with_training_estimate(
    load: Callable[[], Resolved], tokens: str | int | None, assume: Iterable[str]
) -> Report:
    """Return the Report of the plan that ``load`` reads. Raise InputError with every problem."""
    problems: list[Problem] = []
    terms = attempted(lambda: parse_terms(tokens, assume), problems)
    resolved = attempted(load, problems)
    if problems or terms is None or resolved is None:
        raise InputError(problems)
    setting = replace(resolved.setting, cluster=terms.assumed.on(resolved.setting.cluster))
    return report_with_training_cost(
        predicted(replace(resolved, setting=setting)), TrainingCost.of(setting, terms)
    )
