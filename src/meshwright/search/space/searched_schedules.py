"""The schedules that a search tries: those with a closed form, the named ones, or all of a stack's.

A CSV file of lists is a name too (``schedules/custom/custom_schedule.py``). Names come with usual knobs. ``auto``
turns the knobs that schedule and stack both have: ``LIMITS`` of memory, and units of as many rounds as the
schedule's entry names, for every number of pipeline ranks that a plan may have; and it spreads the vocabulary and
validates steps in every way that the stack has.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from meshwright.errors import InputError, Problem, nearest
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.custom.csv_file import lines_of_file
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.schedule_kind import ScheduleKind
from meshwright.schedules.vocabulary import FORMS
from meshwright.stack.stack import Stack

AUTO = "auto"
LIMITS = (0.5, 0.75, 1.5, 2.0)
"""Beside the usual memory, in times of what 1F1B holds."""
AT_THE_ENDS = "none"
"""The word for a vocabulary that is not spread over the pipeline ranks."""
SearchedSchedules = tuple[ScheduleChoice, ...]


def usual_schedules(stack: Stack) -> SearchedSchedules:
    """Those that a search proposes by itself; without a pipeline all are 1F1B."""
    alone = stack.optimizer.forward_only  # forward passes of all schedules are the same
    names = (name for name, kind in _runs(stack) if kind.searched)
    return tuple(ScheduleChoice(name) for name in names if name == "1f1b" or not alone)


def named_schedules(text: str, stack: Stack, field: str) -> SearchedSchedules:
    """Parse ``zb-v,1f1b``. Raise InputError with every name that is unknown or not the stack's."""
    problems = list[Problem]()
    found = list[ScheduleChoice]()
    for name in dict.fromkeys(part.strip() for part in text.split(",")):
        if name == AUTO:
            problems.append(Problem(field, text, "auto means all schedules and stands alone", AUTO))
        elif names_list_file(name):
            found += written_schedule(name, stack, field, problems)
        elif name not in SCHEDULES:
            problems.append(Problem(field, name, "is no such choice", nearest(name, [*SCHEDULES, AUTO])))
        elif name != "1f1b" and name not in stack.schedules:
            hint = "one of " + ", ".join(stack.schedules)
            problems.append(Problem(field, name, f"{stack.id} does not run this schedule", hint))
        else:
            found.append(ScheduleChoice(name))
    if problems:
        raise InputError(problems)
    return tuple(found)


def names_list_file(name: str) -> bool:
    """Return true if a name is that of a file of action lists."""
    return name not in SCHEDULES and (name.endswith(".csv") or os.path.isfile(name))


def written_schedule(
    name: str, stack: Stack, field: str, problems: list[Problem]
) -> Iterator[ScheduleChoice]:
    """Yield the schedule of a file if it has no problem and the stack runs custom schedules."""
    try:
        lines = lines_of_file(name)
    except InputError as error:
        problems += [replace(problem, field=field) for problem in error.problems]
        return
    written = CustomSchedule(lines, name)
    faults = written.problems
    if not stack.written_lists:
        rule = f"{stack.id} runs schedules by name, not lists of one's own"
        faults.append(Problem(field, name, rule, "--stack meshwright, or a schedule by name"))
    elif written.kind is not None and written.kind.only is not None and written.kind.only[0] == 1:
        rule = "has lists of one pipeline rank: there is nothing to order"
        faults.append(Problem(field, name, rule, "1f1b, or lists of several ranks"))
    elif written.kind is not None and written.kind.barriers:
        rule = "has passes of a vocabulary that is spread, and a search spreads none"
        faults.append(Problem(field, name, rule, "lists of F, B, I and W alone"))
    problems += faults
    if not faults:
        yield ScheduleChoice(written.name, written=written)


def all_schedules(stack: Stack, ranks: Sequence[int]) -> SearchedSchedules:
    """Every schedule that a stack runs with every knob that it has, for pipelines of ``ranks``."""
    turned = (choice for name, kind in _runs(stack) for choice in _turned(name, kind, stack, ranks))
    spread = (one for choice in turned for one in (choice, *_spread(choice, stack)))
    return tuple(dict.fromkeys(one for choice in spread for one in (choice, *_validated(choice, stack))))


def with_knobs(
    schedules: SearchedSchedules, knobs: Mapping[str, float | str], stack: Stack
) -> SearchedSchedules:
    """Return the schedules with these knobs, each once, except schedules that lack a knob or whose stack does.

    When a step is validated and where the vocabulary lies is no matter of the schedule.
    """
    if knobs.get("step_validation", "before") not in stack.step_validations:
        return ()
    asked = knobs.keys() - {"step_validation", "vocabulary"}
    able = (choice for choice in schedules if asked <= choice.kind.depends_on & set(stack.schedule_knobs))
    if "vocabulary" in knobs:
        able = (one for choice in able for one in _with_vocabulary(choice, str(knobs["vocabulary"]), stack))
    given = {name: knobs[name] for name in knobs if name != "vocabulary"}
    return tuple(dict.fromkeys(replace(choice, **given) for choice in able))  # type: ignore[arg-type]


def _with_vocabulary(choice: ScheduleChoice, word: str, stack: Stack) -> Iterator[ScheduleChoice]:
    """Yield the schedule with its vocabulary as a word says, if it can have it so."""
    usual = replace(choice, vocabulary=None)
    every = {AT_THE_ENDS: usual} | {str(one.vocabulary): one for one in _spread(usual, stack)}
    if word in every:
        yield every[word]


def _runs(stack: Stack) -> Iterator[tuple[str, ScheduleKind]]:
    for name, kind in SCHEDULES.items():
        if name in stack.schedules or name == "1f1b":
            yield name, kind


def _turned(name: str, kind: ScheduleKind, stack: Stack, ranks: Sequence[int]) -> Iterator[ScheduleChoice]:
    knobs = kind.depends_on & set(stack.schedule_knobs)
    yield ScheduleChoice(name)
    if "memory_limit" in knobs:
        yield from (ScheduleChoice(name, memory_limit=limit) for limit in LIMITS)
    if "unit" in knobs:
        units = sorted({rounds * pp for rounds in kind.unit_rounds for pp in ranks if pp > 1})
        yield from (ScheduleChoice(name, unit=unit) for unit in units)


def _spread(choice: ScheduleChoice, stack: Stack) -> Iterator[ScheduleChoice]:
    """Yield the schedule with its vocabulary spread over the pipeline ranks, in every form that it can have."""
    for name in stack.vocabularies:
        form = FORMS[name]
        if choice.kind.chains == 1 and form.only in (None, choice.name):
            yield replace(choice, vocabulary=name)


def _validated(choice: ScheduleChoice, stack: Stack) -> Iterator[ScheduleChoice]:
    """Yield the schedule with its steps validated in the way that is not the stack's own."""
    usual = "after" if stack.validates_step_afterwards and choice.kind.split else "before"
    for validation in stack.step_validations:
        if validation != usual:
            yield replace(choice, step_validation=validation)


def fits_ranks(choice: ScheduleChoice, ranks: int) -> bool:
    """Return true if the schedule has no unit, or one of the rounds that are tried for so many ranks."""
    return choice.unit is None or any(choice.unit == n * ranks for n in choice.kind.unit_rounds)
