"""Conditions on a file's options, as tables of requirements write them.

    NAME           the option is given, and not false
    NAME=a,b       all of its values are among these; the framework's default stands in for an option left out
    NAME~a,b       one of its values is among these
    NAME*text      its first value has this text in it
    NAME>3         the same with >=, <, <= and % (is a multiple of); on the right a number or another name
    !CONDITION     the opposite

A name is an option, or a number of the plan: ``@pp``. A condition that the file cannot tell is neither true nor false.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

CONDITION = re.compile(r"(!?)([^!=<>~*%]+)(?:(>=|<=|[=<>~*%])(.+))?")
OFF = ("false", "none", "null", "")
WORDS_OF = {">": ">", ">=": "at least", "<": "<", "<=": "at most", "%": "a multiple of", "*": "with"}
NUMBERS = {
    **{f"@{axis}": axis for axis in ("pp", "tp", "cp", "ep")},
    "@virtual": "virtual stages",
    "@experts": "experts",
    "@stage": "stage",
}


Words = Callable[[str], Sequence[str] | None]


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
class GivenValues:
    """Values of options and numbers; ``words`` returns those of an option, None for one left out.

    It returns UNKNOWN for values that only a running shell knows, and OPEN for an option that code beside the file may
    set. ``numbers`` are those of the plan by ``@name``, ``defaults`` the values of options that are left out.
    """

    words: Words
    numbers: Mapping[str, int]
    defaults: Mapping[str, str]

    def changed(self, changes: Mapping[str, Sequence[str] | None]) -> "GivenValues":
        """Return the values of the file with other options; None takes one out."""
        return replace(self, words=lambda name: changes[name] if name in changes else self.words(name))

    def values(self, name: str) -> Sequence[str] | None:
        """Return the values of an option or of a number, defaults included."""
        if name in self.numbers:
            return (str(self.numbers[name]),)
        given = self.words(name)
        return (self.defaults[name],) if given is None and name in self.defaults else given


UNKNOWN, OPEN = ("?",), ("?", "?")


def conditions(text: str) -> tuple[Condition, ...]:
    """Return the conditions of a text."""
    found = []
    for word in text.split():
        match = CONDITION.fullmatch(word)
        assert match, f"no condition: {word}"
        found.append(Condition(bool(match[1]), match[2], match[3] or "", match[4] or ""))
    return tuple(found)


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
