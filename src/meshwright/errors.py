"""What can go wrong, as values.

MeshwrightError
├── InputError          the input is wrong: exit code 2, carries *all* problems at once
│   ├── PlanError       a plan that is illegal or contradicts its model, cluster or workload
│   └── UnsupportedError  legal in the plan language, not supported (yet), refused by name
├── InfeasibleError     the answer is "no": exit code 1, carries the reasons
├── MeasurementError    a measurement did not succeed
└── RunError            a run did not succeed: a rank failed or a message was late

Inside a search, infeasible is a counted value and nothing is raised. Internal invariants use ``assert``.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Literal, TypeVar

Severity = Literal["error", "warning"]
T = TypeVar("T")
LONGEST = 80
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+ -]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input.

    ``field`` is the path in the input (``layout.tp``), ``value`` what stood there, ``rule`` the rule that it
    breaks with its equation filled in, ``suggestion`` a change that would mend it.
    """

    field: str
    value: object
    rule: str
    suggestion: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        text = f"{heading(self.field, self.value)}: {self.rule}"
        return f"{text}. Suggestion: {self.suggestion}" if self.suggestion else text

    def to_json(self) -> dict[str, object]:
        """The problem as JSON-ready data; a value that JSON has no word for as text."""
        return asdict(self) | {"value": _in_json(self.value)}


class MeshwrightError(Exception):
    """Whatever Meshwright refuses; ``exit_code`` is what the command line returns."""

    exit_code = 2


class InputError(MeshwrightError):
    """The input is wrong. ``problems`` holds every problem that was found, not only the first."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PlanError(InputError):
    """A plan that is illegal by itself or against its model, cluster or workload."""


class UnsupportedError(InputError):
    """Something that the plan language knows and this release does not support: refused by name."""


class InfeasibleError(MeshwrightError):
    """The question is well put and the answer is no; ``reasons`` say why, ``suggestion`` what would do."""

    exit_code = 1

    def __init__(self, message: str, reasons: Sequence[str] = (), suggestion: str = "") -> None:
        self.message, self.reasons, self.suggestion = message, tuple(reasons), suggestion
        lines = [message, *(f"  - {reason}" for reason in reasons)]
        super().__init__("\n".join([*lines, f"Suggestion: {suggestion}"] if suggestion else lines))


class MeasurementError(MeshwrightError):
    """A measurement did not succeed."""

    exit_code = 1


class RunError(MeshwrightError):
    """A run did not succeed; the message names the rank, the action and what failed."""

    exit_code = 1


def attempted(make: Callable[[], T], problems: list[Problem]) -> T | None:
    """What ``make`` returns; None where the input is wrong, whose problems are added to ``problems``."""
    try:
        return make()
    except InputError as error:
        problems += error.problems
        return None


def nearest(name: str, known: Iterable[str], *, alike: float = 0.5) -> str:
    """A suggestion for an unknown name: the near ones, or all of them when none is near and they are few.

    ``alike``: the part of both names that a near one shares with it; more of it where all names are short.
    """
    names = sorted(set(known))
    lower = {known_name.lower(): known_name for known_name in names}
    found = difflib.get_close_matches(str(name).lower(), lower, n=3, cutoff=alike)
    near = [lower[match] for match in found]
    if near:
        return "did you mean " + " or ".join(near) + "?"
    shown = names if len(names) <= 12 else [*names[:12], f"… ({len(names)} in all)"]
    return "one of " + ", ".join(shown) if names else ""


def heading(field: str, value: object) -> str:
    """A field with the value that stood there, in the words of a plan file; alone where there was none.

    A long value keeps both ends: of a path the last part matters most.
    """
    if value is None:
        return field
    text = written(value) if not isinstance(value, str) else repr(value)
    half = (LONGEST - 3) // 2
    return f"{field} = {text if len(text) <= LONGEST else text[:half] + '...' + text[-half:]}"


def written(value: object) -> str:
    """A value as a plan file has it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value if _PLAIN.fullmatch(value) else repr(value)
        case Mapping():
            return "{" + ", ".join(f"{key}: {written(inner)}" for key, inner in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(written, value)) + "]"
    return repr(value)


def _in_json(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float() if isfinite(value):
            return value
        case Mapping():
            return {str(key): _in_json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_in_json(inner) for inner in value]
    return repr(value)
