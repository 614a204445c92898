"""Requirements between a framework's options: a table of conditions, and the problems of a file that breaks them.

A row says that where all conditions of ``where`` hold, one of the alternatives of ``requires`` must hold. Conditions
stand next to each other, alternatives are parted by ``or``; ``never`` has no alternative. A condition is

    NAME           the option is given, and not false
    NAME=a,b       all of its values are among these; the framework's default stands in for an option left out
    NAME~a,b       one of its values is among these
    NAME*text      its first value has this text in it
    NAME>3         the same with >=, <, <= and % (is a multiple of); on the right a number or another name
    !CONDITION     the opposite

A name is an option, or a number of the plan: ``@pp``. A condition that the file cannot tell is neither true nor false,
and breaks nothing. The problem is the first option of ``where``; ``says`` is its rule, and left empty it follows from
``requires``.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from meshwright.frameworks.importing.config_values import ConfigValues

CONDITION = re.compile(r"(!?)([^!=<>~*%]+)(?:(>=|<=|[=<>~*%])(.+))?")
OFF = ("false", "none", "null", "")
WORDS_OF = {">": ">", ">=": "at least", "<": "<", "<=": "at most", "%": "a multiple of", "*": "with"}
NUMBERS = {**{f"@{axis}": axis for axis in ("pp", "tp", "cp", "ep")}, "@virtual": "virtual stages", "@experts": "experts", "@stage": "stage"}


class BrokenRequirement(NamedTuple):
    """The option that a file may not have so, the rule, and what mends it."""

    option: str
    rule: str
    suggestion: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, as the table writes it."""

    negated: bool
    name: str
    operator: str
    value: str

    def shown(self, field: str = "") -> str:
        """Return the condition in words; ``field`` is the option that the sentence is about."""
        value = self.value.replace(",", " or ").removeprefix("@")
        sign = "=" if self.name in NUMBERS and self.operator == "=" else WORDS_OF.get(self.operator, "")
        name = "" if self.name == field and self.operator else NUMBERS.get(self.name, self.name)
        return " ".join(filter(None, ("no" if self.negated else "", name, sign, value)))


@dataclass(frozen=True, slots=True)
class Requirement:
    """A row of the table; without alternatives nothing satisfies it."""

    where: tuple[Condition, ...]
    alternatives: tuple[tuple[Condition, ...], ...]
    says: str


@dataclass(frozen=True, slots=True)
class GivenValues:
    """What a file says: ``words`` returns the values of an option, None for one left out.

    It returns UNKNOWN for values that only a running shell knows, and OPEN for an option that code beside the file may
    set. ``numbers`` are those of the plan by ``@name``, ``defaults`` the values of options that are left out.
    """

    words: Callable[[str], Sequence[str] | None]
    numbers: Mapping[str, int]
    defaults: Mapping[str, str]

    def values(self, name: str) -> Sequence[str] | None:
        """Return the values of an option or of a number, defaults included."""
        if name in self.numbers:
            return (str(self.numbers[name]),)
        given = self.words(name)
        return (self.defaults[name],) if given is None and name in self.defaults else given


UNKNOWN, OPEN = ("?",), ("?", "?")


def words_of_key(settings: ConfigValues, key: str) -> Sequence[str] | None:
    """Return the values of a configuration's key: truth values in lower case, none where it is left open."""
    value = settings.get(key)
    if value is None:
        return None
    values = value if isinstance(value, list | tuple) else (value,)
    return tuple(str(item).lower() if isinstance(item, bool) else str(item) for item in values)


@cache
def read_requirements(package: str, release: str) -> tuple[Requirement, ...]:
    """Return the table of a framework's release."""
    return tuple(
        Requirement(_conditions(row["where"]), _alternatives(row["requires"]), row["says"])
        for row in _rows(package, f"{release}-requirements.csv")
    )


@cache
def read_defaults(package: str, release: str) -> dict[str, str]:
    """Return the release's values of options that a requirement asks for where a file leaves them out."""
    return {row["option"]: row["value"] for row in _rows(package, f"{release}-option-defaults.csv")}


def _rows(package: str, file: str) -> list[dict[str, str]]:
    text = files(package).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _alternatives(text: str) -> tuple[tuple[Condition, ...], ...]:
    return () if text == "never" else tuple(_conditions(part) for part in text.split(" or "))


def _conditions(text: str) -> tuple[Condition, ...]:
    found = []
    for word in text.split():
        match = CONDITION.fullmatch(word)
        assert match, f"no condition: {word}"
        found.append(Condition(bool(match[1]), match[2], match[3] or "", match[4] or ""))
    return tuple(found)


def broken_requirements(rows: Sequence[Requirement], given: GivenValues) -> Iterator[BrokenRequirement]:
    """Yield the rows that the file breaks."""
    for row in rows:
        if not all(holds(condition, given) is True for condition in row.where):
            continue
        held = [[holds(condition, given) for condition in part] for part in row.alternatives]
        if any(False not in part for part in held):
            continue
        broken = [c for c, value in zip(row.alternatives[0], held[0], strict=True) if value is False] if held else []
        yield BrokenRequirement(row.where[0].name, row.says or _rule(row, given, broken), _hint(row, broken))


def holds(condition: Condition, given: GivenValues) -> bool | None:
    """Return whether a condition holds; None where the file cannot tell."""
    values = given.values(condition.name)
    if values in (UNKNOWN, OPEN):
        return None if condition.operator or values == OPEN else not condition.negated
    found = _holds(condition, values, given)
    return None if found is None else found != condition.negated


def _holds(condition: Condition, values: Sequence[str] | None, given: GivenValues) -> bool | None:
    asked = condition.value.split(",")
    match condition.operator:
        case "":
            return values is not None and (values or ("on",))[0].lower() not in OFF
        case "=":
            return bool(values) and all(value.lower() in asked for value in values or ())
        case "~":
            return any(value.lower() in asked for value in values or ())
        case "*":
            return bool(values) and condition.value in (values or ("",))[0]
    left = _number(values)
    named = condition.value.startswith(("@", "--"))
    right = _number(given.values(condition.value) if named else (condition.value,))
    return None if left is None or right is None else _compared(left, condition.operator, right)


def _compared(left: float, operator: str, right: float) -> bool:
    match operator:
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case _:
            return right != 0 and left % right == 0


def _number(values: Sequence[str] | None) -> float | None:
    try:
        return float(values[0]) if values else None
    except ValueError:
        return None


def _rule(row: Requirement, given: GivenValues, broken: Sequence[Condition]) -> str:
    """Say what is required, with what, and the numbers that break it."""
    field = row.where[0].name
    own = all(condition.name == field for part in row.alternatives for condition in part)
    parts = (" and ".join(condition.shown(field if own else "") for condition in part) for part in row.alternatives)
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

