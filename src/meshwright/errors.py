"""Exceptions of the package, as values.

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
from textwrap import TextWrapper
from types import MappingProxyType
from typing import Any, Literal, TypeVar

Severity = Literal["error", "warning"]
T = TypeVar("T")
LONGEST = 80
_INDENTED = TextWrapper(
    100, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
)
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
        """Return the problem as JSON-ready data; a value that JSON cannot express becomes text."""
        return asdict(self) | {"value": _in_json(self.value)}


class MeshwrightError(Exception):
    """Whatever Meshwright refuses; ``exit_code`` is what the command line returns.

    ``details`` are further keys of the JSON document.
    """

    exit_code = 2
    details: Mapping[str, Any] = MappingProxyType({})


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
    """The question is well put and the answer is no; ``reasons`` say why, ``suggestion`` what would do.

    ``summary`` has what matters most of many reasons; the text shows it in their place.
    """

    exit_code = 1

    def __init__(
        self, message: str, reasons: Sequence[str] = (), suggestion: str = "", summary: Sequence[str] = ()
    ) -> None:
        self.message, self.reasons, self.suggestion = message, tuple(reasons), suggestion
        self.summary = tuple(summary)
        super().__init__(self._text(self.summary or self.reasons))

    @property
    def full_text(self) -> str:
        """The text with the summary and all reasons."""
        own = (line for line in self.summary if not any(reason.endswith(line) for reason in self.reasons))
        return self._text((*own, *self.reasons))

    def _text(self, reasons: Iterable[str]) -> str:
        lines = [self.message, *(_INDENTED.fill(reason) for reason in reasons)]
        return "\n".join([*lines, f"Suggestion: {self.suggestion}"] if self.suggestion else lines)


class MeasurementError(MeshwrightError):
    """A measurement did not succeed."""

    exit_code = 1


class RunError(MeshwrightError):
    """A run did not succeed; the message names the rank, the action and what failed."""

    exit_code = 1


def attempted(make: Callable[[], T], problems: list[Problem]) -> T | None:
    """Call ``make`` and return its result; on wrong input add its problems to ``problems`` and return None."""
    try:
        return make()
    except InputError as error:
        problems += error.problems
        return None


def nearest(name: str, candidates: Iterable[str], *, alike: float = 0.5) -> str:
    """Suggest names for an unknown one: similar names, or all of them when none is similar and they are few.

    ``alike``: the part of both names that a near one shares with it; more of it where all names are short.
    """
    names = sorted(set(candidates))
    near = near_names(name, names, alike=alike)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    shown = names if len(names) <= 12 else [*names[:12], f"… ({len(names)} in all)"]
    return "one of " + ", ".join(shown) if names else ""


def near_names(name: str, candidates: Iterable[str], *, alike: float = 0.5) -> list[str]:
    """Return at most three known names that are like an unknown one, the nearest first; letter case is ignored."""
    lower = {candidate.lower(): candidate for candidate in candidates}
    return [lower[match] for match in difflib.get_close_matches(str(name).lower(), lower, n=3, cutoff=alike)]


def heading(field: str, value: object) -> str:
    """Return a field with its value, spelled as in a plan file; the field alone where there was no value.

    A long value keeps both ends: of a path the last part matters most.
    """
    if value is None:
        return field
    text = written(value) if not isinstance(value, str) else repr(value)
    half = (LONGEST - 3) // 2
    return f"{field} = {text if len(text) <= LONGEST else text[:half] + '...' + text[-half:]}"


def written(value: object) -> str:
    """Return a value as a plan file spells it."""
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
