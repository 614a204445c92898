"""Parse the constraints of a question: ``--keep tp=8``, ``--forbid schedule=gpipe``, as data."""

from collections.abc import Iterable, Mapping
from functools import partial
from math import inf
from typing import Any, get_args

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.plans.arrays.short_plans import NUMBERS
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.plan_choice import Choice
from meshwright.plans.forms.spellings import our_word
from meshwright.schedules.choice import StepValidation
from meshwright.schedules.vocabulary import FORMS
from meshwright.search.space.constraints import Forbidden, Keep, Value
from meshwright.search.space.searched_schedules import AT_THE_ENDS, names_list_file

OTHER_WORDS: Mapping[str, Mapping[str, Value]] = {
    "step_validation": {word: word for word in get_args(StepValidation)},
    "vocabulary": {word: word for word in (AT_THE_ENDS, *FORMS)},
}
"""Values by word of what arrays of plans hold no codes of."""
CODED = {choice.name: choice for choice in CHOICES.values()}
NUMBERED = (*NUMBERS, "unit", "in_flight")
FIXABLE = (*NUMBERED, *CODED, *OTHER_WORDS, "memory_limit")
"""What can be fixed."""
FORBIDDEN = (*NUMBERS, *CODED)
"""What can be forbidden."""


def parse_keep(texts: Iterable[str]) -> Keep:
    """``tp=8`` and the like. Raises InputError with every one that is no choice or no value."""
    return dict(_parsed(texts, "keep", FIXABLE))


def parse_forbid(texts: Iterable[str]) -> Forbidden:
    """``tp=8`` and the like, each any number of times. Raises InputError as ``parse_keep`` does."""
    result: dict[str, tuple[Value, ...]] = {}
    for name, value in _parsed(texts, "forbid", FORBIDDEN):
        result[name] = (*result.get(name, ()), value)
    return result


def _parsed(texts: Iterable[str], option: str, choices: tuple[str, ...]) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    problems: list[Problem] = []
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in choices:
            rule = "can not be forbidden" if name in FIXABLE else "is no choice of a plan"
            problems.append(Problem(option, text, rule, nearest(name, choices)))
            continue
        parsed = attempted(partial(_value, option, name, value), problems)
        if parsed is not None:
            found.append((name, parsed))
    if problems:
        raise InputError(problems)
    return found


def _value(option: str, name: str, text: str) -> Value:
    """Parse a value of a choice. Raise InputError."""
    field = f"{option}.{name}"
    if name == "memory_limit":
        return _limit(field, text)
    if name in CODED:
        return _coded(field, CODED[name], text)
    if name in OTHER_WORDS:
        return _word(field, text, OTHER_WORDS[name])
    if not text.isdecimal() or not 1 <= int(text) < 2**40:
        raise InputError(Problem(field, text, "must be a whole number from 1", f"{name}=8"))
    return int(text)


def _coded(field: str, choice: Choice, text: str) -> Value:
    """Parse a value of a coded choice. Raise InputError."""
    text = our_word(text, choice.spellings)
    if choice.parse:
        try:
            return choice.parse(text)  # type: ignore[return-value]
        except ValueError as error:
            raise InputError(Problem(field, text, str(error), f"{choice.name}={choice.example}")) from None
    if choice.listed and text not in choice.words:
        return _listed(field, text, choice)
    if choice.name == "schedule" and names_list_file(text):
        return text
    return _word(field, text, choice.words)


def _word(field: str, text: str, words: Mapping[str, Any]) -> Value:
    """Return the value that a word stands for. Raise InputError."""
    if text not in words:
        raise InputError(Problem(field, text, "is no such choice", nearest(text, words)))
    return words[text]


def _listed(field: str, text: str, choice: Choice) -> tuple[str, ...]:
    """Names with commas between: all of them in some order, or some of them in theirs. Raises InputError."""
    names, known = tuple(name.strip() for name in text.split(",")), choice.listed
    wrong = [name for name in names if name not in known]
    if wrong:
        words = (*choice.words, *known)
        raise InputError([Problem(field, name, "is no such choice", nearest(name, words)) for name in wrong])
    if len(set(names)) < len(names) or (choice.order and len(names) < len(known)):
        rule = f"must name each of {', '.join(known)} once" if choice.order else "names something twice"
        hint = ",".join(known if choice.order else dict.fromkeys(names))
        raise InputError(Problem(field, text, rule, hint))
    return names if choice.order else tuple(name for name in known if name in names)


def _limit(field: str, text: str) -> float:
    """Parse a memory limit. Raise InputError."""
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < inf:
        rule = "must be a number above 0, in times of what 1F1B holds"
        raise InputError(Problem(field, text, rule, "memory_limit=0.5"))
    return limit
