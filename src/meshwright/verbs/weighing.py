"""Weigh a plan: its prediction with goodput, and what a whole training by it comes to."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from meshwright.economy.course import Course
from meshwright.economy.terms import parse_terms
from meshwright.economy.weighed import weighed
from meshwright.errors import InputError, Problem, attempted
from meshwright.plan.resolve import Resolved
from meshwright.result import Report
from meshwright.verbs.predicting import predicted


def report_on_terms(load: Callable[[], Resolved], tokens: str | int | None, assume: Iterable[str]) -> Report:
    """The Report of the plan that ``load`` reads. Raises InputError with the problems of the plan and of the terms."""
    problems: list[Problem] = []
    terms = attempted(lambda: parse_terms(tokens, assume), problems)
    resolved = attempted(load, problems)
    if problems or terms is None or resolved is None:
        raise InputError(problems)
    setting = replace(resolved.setting, cluster=terms.assumed.on(resolved.setting.cluster))
    return weighed(predicted(replace(resolved, setting=setting)), Course.of(setting, terms))
