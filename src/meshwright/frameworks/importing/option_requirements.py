"""Requirements between a framework's options: a table of conditions, and the problems of a file that breaks them.

A row says that where all conditions of ``where`` hold, one of the alternatives of ``requires`` must hold
(``option_conditions.py``). Conditions stand next to each other, alternatives are parted by ``or``; ``never`` has no
alternative. What the file cannot tell breaks nothing. The problem is the first option of ``where``; ``says`` is its
rule, and left empty it follows from ``requires``.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Yield the rows that the file breaks."""
    for row in rows:
        if not all(holds(condition, given) is True for condition in row.where):
            continue
        held = [[holds(condition, given) for condition in part] for part in row.alternatives]
        if any(False not in part for part in held):
            continue
        broken = (
            [c for c, value in zip(row.alternatives[0], held[0], strict=True) if value is False]
            if held
            else []
        )
        yield BrokenRequirement(row.where[0].name, row.says or _rule(row, given, broken), _hint(row, broken))


def _rule(row: Requirement, given: GivenValues, broken: Sequence[Condition]) -> str:
    """Say what is required, with what, and the numbers that break it."""
    field = row.where[0].name
    if not row.alternatives:
        return "is refused here"
    own = all(condition.name == field for part in row.alternatives for condition in part)
    parts = (
        " and ".join(condition.shown(field if own else "") for condition in part) for part in row.alternatives
    )
    others = " ".join(condition.shown() for condition in row.where[1:])
    numbers = [f"{NUMBERS[c.name]} = {given.numbers[c.name]}" for c in broken if c.name in given.numbers]
    rule = f"{'must be' if own else 'needs'} {', or '.join(parts)}"
    return rule + (f" with {others}" if others else "") + (f": {', '.join(numbers)}" if numbers else "")


def _hint(row: Requirement, broken: Sequence[Condition]) -> str:
    """Write what is missing; a number of the plan is not proposed, for it would have to be tried."""
    written = []
    for condition in broken:
        if condition.name in NUMBERS or condition.operator in WORDS_OF:
            return f"leave {row.where[0].name} out"
        if condition.negated:
            written.append(f"leave {replace(condition, negated=False).shown()} out")
        else:
            written.append(f"{condition.name} {condition.value.split(',')[0]}".strip())
    return ", ".join(written) or f"leave {row.where[0].name} out"
