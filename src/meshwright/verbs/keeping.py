"""What a question fixes of a plan and what it forbids: ``--keep tp=8``, ``--forbid schedule=gpipe``, as data."""

from collections.abc import Iterable
from functools import partial
from math import inf
from typing import get_args

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.plan.arrays import COLUMNS, SHARDINGS
from meshwright.plan.short import DEFAULT_RANK_ORDER, RecomputeOperator
from meshwright.schedule import SCHEDULES
from meshwright.schedule.choice import StepValidation
from meshwright.search.schedules import names_lists
from meshwright.search.space import GATHERS
from meshwright.search.variants import RECOMPUTES
from meshwright.search.wishes import Forbidden, Keep, Kept

NAMES: dict[str, tuple[str, ...]] = {
    "sharding": SHARDINGS,
    "schedule": tuple(SCHEDULES),
    "recompute": RECOMPUTES,
    "gather": GATHERS,
    "step_validation": get_args(StepValidation),
    "sequence_parallel": ("true", "false"),
}
NUMBERS = (*(c for c in COLUMNS if c not in NAMES and c != "order"), "unit")
CHOICES = (*NUMBERS, *NAMES, "rank_order", "memory_limit")
FORBIDDEN = tuple(c for c in CHOICES if c not in ("gather", "unit", "memory_limit", "step_validation"))
"""What can be forbidden."""


def parse_keep(texts: Iterable[str]) -> Keep:
    """``tp=8`` and the like. Raises InputError with every one that is no choice or no value."""
    return dict(_parsed(texts, "keep", CHOICES))


def parse_forbid(texts: Iterable[str]) -> Forbidden:
    """``tp=8`` and the like, each any number of times. Raises InputError as ``parse_keep`` does."""
    result: dict[str, tuple[Kept, ...]] = {}
    for name, value in _parsed(texts, "forbid", FORBIDDEN):
        result[name] = (*result.get(name, ()), value)
    return result


def _parsed(texts: Iterable[str], option: str, choices: tuple[str, ...]) -> list[tuple[str, Kept]]:
    found: list[tuple[str, Kept]] = []
    problems: list[Problem] = []
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in choices:
            rule = "can not be forbidden" if name in CHOICES else "is no choice of a plan"
            problems.append(Problem(option, text, rule, nearest(name, choices)))
            continue
        parsed = attempted(partial(_value, option, name, value), problems)
        if parsed is not None:
            found.append((name, parsed))
    if problems:
        raise InputError(problems)
    return found


def _value(option: str, name: str, text: str) -> Kept:
    """A value of a choice. Raises InputError."""
    field = f"{option}.{name}"
    if name == "memory_limit":
        return _limit(field, text)
    if name == "rank_order":
        return _listed(field, text, DEFAULT_RANK_ORDER, whole=True)
    if name == "recompute" and text not in RECOMPUTES:
        return _listed(field, text, get_args(RecomputeOperator), whole=False)
    if name in NAMES:
        if text not in NAMES[name] and not (name == "schedule" and names_lists(text)):
            raise InputError(Problem(field, text, "is no such choice", nearest(text, NAMES[name])))
        return text == "true" if name == "sequence_parallel" else text
    if not text.isdecimal() or not 1 <= int(text) < 2**40:
        raise InputError(Problem(field, text, "must be a whole number from 1", f"{name}=8"))
    return int(text)


def _listed(field: str, text: str, known: tuple[str, ...], *, whole: bool) -> tuple[str, ...]:
    """Names with commas between: all of them in some order, or some of them in theirs. Raises InputError."""
    names = tuple(name.strip() for name in text.split(","))
    wrong = [name for name in names if name not in known]
    if wrong:
        words = known if whole else (*RECOMPUTES, *known)
        raise InputError([Problem(field, name, "is no such choice", nearest(name, words)) for name in wrong])
    if len(set(names)) < len(names) or (whole and len(names) < len(known)):
        rule = f"must name each of {', '.join(known)} once" if whole else "names something twice"
        raise InputError(Problem(field, text, rule, ",".join(known if whole else dict.fromkeys(names))))
    return names if whole else tuple(name for name in known if name in names)


def _limit(field: str, text: str) -> float:
    """A limit of memory. Raises InputError."""
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < inf:
        rule = "must be a number above 0, in times of what 1F1B holds"
        raise InputError(Problem(field, text, rule, "memory_limit=0.5"))
    return limit
