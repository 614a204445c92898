"""Explain a plan: its prediction taken apart, its neighbours, the best others, and what would change the answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from meshwright.cost.evaluate import evaluate, seconds_by_part
from meshwright.explain.beside import USUAL, Beside, Subject, beside, legal_plan
from meshwright.explain.choices import choices
from meshwright.explain.contest import Contest
from meshwright.explain.explained import Explained
from meshwright.explain.forecast import forecast_at
from meshwright.explain.memory_turns import MOST, Field, memory_turns
from meshwright.explain.resources import device_memory, rates, work
from meshwright.explain.reworked import Reworked, reworked, work_turns
from meshwright.explain.scheduled import scheduled
from meshwright.explain.sensitivity import sensitivities
from meshwright.explain.spent import Spent
from meshwright.explain.turns import Turn, rate_turns
from meshwright.plan.resolve import Resolved
from meshwright.plan.setting import Setting
from meshwright.search.exhaustive import Found
from meshwright.verbs.searching import scope_of, search

Progress = Callable[[str, float], None]
RIVALS = 3


def explained(resolved: Resolved, progress: Progress) -> Explained:
    """Everything about a plan. Raises InputError where predicting it would take minutes."""
    subject = Subject.of(resolved)
    spent = Spent.of(subject)
    progress("its neighbours", 0.1)
    around = choices(subject)
    progress("other schedules", 0.2)
    schedule = scheduled(subject)
    progress("all plans", 0.3)
    found = searched(subject.setting)
    others = tuple(_rivals(subject, found))
    besides = [*around, *(other for _, other in schedule.others)]
    progress("rates of the cluster", 0.5)
    answers = tuple(sensitivities(subject, list(rates(subject.setting))))
    works = {one.name: reworked(subject, one) for one in work(subject.setting)}
    contest = Contest.of(subject, found, besides) if subject.forecast.fits else None
    holds = contest is not None and contest.holds
    return Explained(
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
    )


def searched(setting: Setting) -> Found:
    """All plans of a setting that ``plan`` would search."""
    return search(replace(scope_of({}, None, RIVALS, setting), whole=True), setting)[1]


def _rivals(subject: Subject, found: Found) -> list[Beside]:
    """The best plans that were found and differ from the subject."""
    if not len(found.ranking):
        return []
    rows = np.array(found.top(RIVALS + 1))
    plans = found.plans.take(rows)
    estimates, parts = evaluate(plans, subject.setting), seconds_by_part(plans, subject.setting)
    header = subject.header.model_copy(update={"gather": None})
    others = []
    for at, row in enumerate(rows.tolist()):
        plan = legal_plan(found.plans.short(row, header), USUAL, subject.setting)
        assert isinstance(plan, Resolved), plan
        others.append(beside(subject, plan, forecast_at(estimates, parts, at)))
    return [other for other in others if other.changes][:RIVALS]


def _best(others: Sequence[Beside]) -> Subject | None:
    """The best plan of a search as a subject of its own; None where none fits."""
    quickest = min(others, key=lambda other: other.forecast.step_s, default=None)
    return None if quickest is None else Subject.of(quickest.resolved)


def _rate_turns(contest: Contest, progress: Progress) -> Iterator[Turn]:
    """Where rates of the cluster change the answer."""
    for resource in rates(contest.subject.setting):
        progress(resource.words, 0.6)
        yield from rate_turns(contest, resource)


def _other_turns(
    subject: Subject,
    besides: Sequence[Beside],
    works: Mapping[str, Sequence[Reworked]],
    best: Subject | None,
    progress: Progress,
) -> Iterator[Turn]:
    """Where memory, batch and sequence length change the answer."""
    progress("device memory", 0.8)
    roomy = searched(device_memory(subject.setting).scaled(MOST))
    yield from memory_turns(Field.of(subject, roomy, besides))
    for name, tries in works.items():
        progress(name.replace("_", " "), 0.9)
        yield from work_turns(subject, tries, best, searched)
