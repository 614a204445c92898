"""Answers to planning questions with each plan weighed."""

from collections.abc import Iterable
from dataclasses import replace

from meshwright.economy.course import Course
from meshwright.economy.terms import parse_terms
from meshwright.economy.weighed import weighed
from meshwright.errors import InputError, Problem, attempted
from meshwright.verbs.planning import PlanAnswer, Question, answer, parse_keep, setting_of
from meshwright.verbs.solving import Progress


def answer_on_terms(
    question: Question, tokens: str | int | None, assume: Iterable[str], tell: Progress | None = None
) -> PlanAnswer:
    """The best plans of a question, each weighed. Raises InputError with the problems of both, and InfeasibleError."""
    problems: list[Problem] = []
    terms = attempted(lambda: parse_terms(tokens, assume), problems)
    of_question: list[Problem] = []
    attempted(lambda: parse_keep(question.keep), of_question)
    setting = attempted(lambda: setting_of(question.header), of_question)
    if terms is None:
        raise InputError(problems + of_question)
    if setting is None:
        return answer(question, None, tell)
    setting = replace(setting, cluster=terms.assumed.on(setting.cluster))
    found, course = answer(question, setting, tell), Course.of(setting, terms)
    proposals = tuple(replace(one, report=weighed(one.report, course)) for one in found.proposals)
    return replace(found, proposals=proposals)
