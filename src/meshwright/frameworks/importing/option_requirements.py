"""Requirements between a framework's options: a table of conditions, and the problems of a file that breaks them.

A row says that where all conditions of ``where`` hold, one of the alternatives of ``requires`` must hold
(``option_conditions.py``). Conditions stand next to each other, alternatives are parted by ``or``; ``never`` has no
alternative. What the file cannot tell breaks nothing. The problem is the first option of ``where``; ``says`` is its
rule, and left empty it follows from ``requires``.
"""

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import NamedTuple

from meshwright.errors import Problem
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.option_conditions import (
    NUMBERS,
    OPEN,
    UNKNOWN,
    WORDS_OF,
    Condition,
    GivenValues,
    Words,
    conditions,
    holds,
)


class BrokenRequirement(NamedTuple):
    """The option that a file may not have so, the rule, and what mends it."""

    option: str
    rule: str
    suggestion: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """A row of the table; without alternatives nothing satisfies it."""

    where: tuple[Condition, ...]
    alternatives: tuple[tuple[Condition, ...], ...]
    says: str


Place = tuple[str, str]
"""The package of a framework, and its release as the names of the tables begin."""


def line_problems(
    place: Place, options: Mapping[str, GivenOption], numbers: Mapping[str, int], *, complete: bool = True
) -> Iterator[Problem]:
    """Yield the options of a command line that lack another one, or that exclude it.

    The options are ``complete`` where code beside the line sets none of those that are left out.
    """

    def words(name: str) -> Sequence[str] | None:
        option = options.get(name)
        if option is None:
            return None if complete else OPEN
        return option.values if option.known else UNKNOWN

    for option, rule, suggestion in _broken(place, words, numbers):
        yield Problem(option, " ".join(options[option].values) or "on", rule, suggestion)


def note_broken_keys(place: Place, settings: ConfigValues, numbers: Mapping[str, int]) -> None:
    """Note the keys of a configuration that lack another one, or that exclude it."""
    for key, rule, suggestion in _broken(place, partial(words_of_key, settings), numbers):
        settings.problem(key, rule, suggestion)


def _broken(place: Place, words: Words, numbers: Mapping[str, int]) -> Iterator[BrokenRequirement]:
    return broken_requirements(read_requirements(*place), GivenValues(words, numbers, read_defaults(*place)))


def words_of_key(settings: ConfigValues, key: str) -> Sequence[str] | None:
    """Return the values of a configuration's key: truth values in lower case, None where it is left open."""
    value = settings.get(key)
    if value is None:
        return None
    values = value if isinstance(value, list | tuple) else (value,)
    return tuple(str(item).lower() if isinstance(item, bool) else str(item) for item in values)


@cache
def read_requirements(package: str, release: str) -> tuple[Requirement, ...]:
    """Return the table of a framework's release."""
    return tuple(
        requirement(row["where"], row["requires"], row["says"])
        for row in _rows(package, f"{release}-requirements.csv")
    )


@cache
def read_defaults(package: str, release: str) -> dict[str, str]:
    """Return the release's values of options that a requirement asks for where a file leaves them out."""
    file = f"{release}-option-defaults.csv"
    there = files(package).joinpath(file).is_file()
    return {row["option"]: row["value"] for row in _rows(package, file)} if there else {}


def _rows(package: str, file: str) -> list[dict[str, str]]:
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def requirement(where: str, requires: str, says: str = "") -> Requirement:
    """Return a row by its text."""
    return Requirement(conditions(where), _alternatives(requires), says)


def _alternatives(text: str) -> tuple[tuple[Condition, ...], ...]:
    return () if text == "never" else tuple(conditions(part) for part in text.split(" or "))


def broken_requirements(rows: Sequence[Requirement], given: GivenValues) -> Iterator[BrokenRequirement]:
    """Yield the rows that the file breaks, each with a change that was tried."""
    broken = _broken_rows(rows, given)
    for number in sorted(broken):
        row = rows[number]
        suggestion = _suggestion(rows, number, given, broken)
        yield BrokenRequirement(row.where[0].name, row.says or _rule(row, given), suggestion)


def _broken_rows(rows: Sequence[Requirement], given: GivenValues) -> set[int]:
    return {
        number
        for number, row in enumerate(rows)
        if all(holds(condition, given) is True for condition in row.where)
        and all(any(holds(c, given) is False for c in part) for part in row.alternatives)
    }


def _suggestion(rows: Sequence[Requirement], number: int, given: GivenValues, broken: Collection[int]) -> str:
    """Return the first change of options that mends a row and breaks no other one; else to leave its option out."""
    for part in rows[number].alternatives:
        changes = _changes([condition for condition in part if holds(condition, given) is False])
        if changes and _broken_rows(rows, given.changed(changes)) <= set(broken) - {number}:
            return ", ".join(_shown_change(name, values) for name, values in changes.items())
    return f"leave {rows[number].where[0].name} out"


def _changes(missing: Sequence[Condition]) -> dict[str, tuple[str, ...] | None]:
    """Return the values by option that make conditions hold, None for one taken out; empty if options do not tell."""
    if any(condition.name in NUMBERS or condition.operator in WORDS_OF for condition in missing):
        return {}
    return {
        condition.name: None if condition.negated else tuple(filter(None, condition.value.split(",")[:1]))
        for condition in missing
    }


def _shown_change(name: str, values: tuple[str, ...] | None) -> str:
    return f"leave {name} out" if values is None else " ".join((name, *values))


def _rule(row: Requirement, given: GivenValues) -> str:
    """Say what is required, with what, and the numbers that break it."""
    field = row.where[0].name
    if not row.alternatives:
        return "is refused here"
    own = all(condition.name == field for part in row.alternatives for condition in part)
    parts = (
        " and ".join(condition.shown(field if own else "") for condition in part) for part in row.alternatives
    )
    others = " ".join(condition.shown() for condition in row.where[1:])
    numbers = [
        f"{NUMBERS[c.name]} = {given.numbers[c.name]}"
        for c in row.alternatives[0]
        if c.name in given.numbers and holds(c, given) is False
    ]
    rule = f"{'must be' if own else 'needs'} {', or '.join(parts)}"
    return rule + (f" with {others}" if others else "") + (f": {', '.join(numbers)}" if numbers else "")
