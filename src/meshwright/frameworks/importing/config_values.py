"""Values of a configuration by their key, with the words of the file; what is no value of its kind becomes a problem.

``auto`` is what the Hugging Face integrations fill in when the training script starts: such a key says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.errors import Problem, Severity
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.plans.forms.short import MAX_DEGREE

AUTO = "auto"
TRUTHS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
"""Words for truth values in files that write them as text."""


def shown(value: object) -> object:
    """Format a value for a problem: sections and lists as text."""
    return value if isinstance(value, str | int | float | bool) else str(value)[:80]


@dataclass(frozen=True, slots=True)
class ConfigValues:
    """The values of a file: ``values`` by key, ``labels`` where the file's own name of a key is longer."""

    values: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def __contains__(self, key: str) -> bool:
        """Return true if the file has the key, ``auto`` included."""
        return key in self.values

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value, or ``default`` where the file leaves it open."""
        value = self.values.get(key)
        return default if value is None or value == AUTO else value

    def label(self, key: str) -> str:
        """Return the key as the file spells it."""
        return self.labels.get(key, key)

    def words(self, key: str) -> str:
        """Return the file's words for the key, or that it leaves it open."""
        if key not in self.values:
            return f"{self.label(key)} left out"
        value = self.values[key]
        return f"{self.label(key)} {str(value).lower() if isinstance(value, bool) else str(value)[:60]}"

    def fact(self, key: str, value: Any) -> Fact:
        """``value`` in our words, with the file's."""
        return Fact(value, self.words(key))

    def left_out(self, key: str, value: Any) -> str:
        """Return words for a key that the file leaves out."""
        return self.words(key)

    def problem(self, key: str, rule: str, suggestion: str = "", *, ignored: bool = False) -> None:
        """Note that the framework refuses the key as it stands, or ignores it."""
        severity: Severity = "warning" if ignored else "error"
        found = Problem(self.label(key), shown(self.values.get(key)), rule, suggestion, severity)
        if found not in self.problems:
            self.problems.append(found)

    def number(self, key: str, least: int = 1) -> int | None:
        """Return a whole number of at least ``least``; None where the file leaves it open or has none."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
            value = int(value.strip()[:9])
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
        if whole and least <= value <= MAX_DEGREE:
            return int(value)
        self.problem(key, f"must be a whole number from {least} to {MAX_DEGREE}", f"e.g. {max(1, least)}")
        return None

    def truth(self, key: str, default: bool = False) -> bool:
        """Return a truth value, also where it is written as text."""
        value = self.get(key, default)
        if isinstance(value, str):
            value = TRUTHS.get(value.strip().lower(), value)
        if isinstance(value, bool | int) and value in (True, False):
            return bool(value)
        self.problem(key, "must be true or false", str(default).lower())
        return default

    def on(self, key: str) -> bool:
        """Return true if the key requests something: a value other than false, empty, ``none``, or 1 or less."""
        value = self.get(key)
        if isinstance(value, bool) or value is None:
            return bool(value)
        if isinstance(value, int | float):
            return value > 1
        return value not in ("none", "None", "", "no", "false", "NO") and bool(value)
