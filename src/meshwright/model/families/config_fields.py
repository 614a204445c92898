"""Read a foreign configuration with checks: every problem is collected, none stops the reading.

A reader requests typed values (``size``, ``flag``, ``number``, ``text``); a wrong value is recorded as a problem and a
placeholder returned, so that the whole file is read. ``finish`` then raises everything at once. Keys
that were absent and took the family's default are kept in ``assumed``. Unknown keys are ignored:
configuration files of released models hold many that do not change a shape.
"""

from collections.abc import Callable, Mapping
from typing import Any

from meshwright.errors import InputError, Problem, UnsupportedError

LARGEST_SIZE = 2**40  # beyond any width, vocabulary or context; larger numbers are mistakes
LARGEST_COUNT = 2**16  # layers and experts, of which lists are made


class Fields:
    """One mapping being read; ``path`` is prepended to field names in problems."""

    def __init__(self, config: Mapping[str, object], path: str = "") -> None:
        self._config, self._path = dict(config), path
        self._problems: list[Problem] = []
        self._unsupported: list[Problem] = []
        self._assumed: dict[str, int | float | str | bool] = {}

    @property
    def assumed(self) -> tuple[tuple[str, int | float | str | bool], ...]:
        """Keys that were absent, with the value that was taken, in the order of reading."""
        return tuple(self._assumed.items())

    def assume(self, **defaults: int | float | str | bool) -> None:
        """Set a family's defaults for keys that are absent (a null stays null)."""
        for key, value in defaults.items():
            if key not in self._config:
                self._config[key] = self._assumed[key] = value

    def size(self, *keys: str, default: int | None = None, least: int = 1, most: int = LARGEST_SIZE) -> int:
        """Return a whole number in [least, most], under the first of ``keys`` that is present (null = absent)."""
        key, value = self._find(keys)
        if value is None:
            if default is None:
                self.problem(key, None, f"{key} is missing", f'add "{key}": a whole number >= {least}')
                return least
            self._assumed[key] = default
            return default
        return self._whole(key, value, least, most)

    def optional_size(self, key: str, word: str | None = None) -> int | None:
        """Return a whole number >= 1, or None if the key is absent, null or ``word``."""
        value = self._config.get(key)
        return None if value is None or value == word else self._whole(key, value, 1, LARGEST_SIZE)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._config.get(key)
        if value is None:
            self._assumed[key] = default
            return default
        if not isinstance(value, bool):
            self.problem(key, value, f"{key} must be true or false", f'"{key}": {str(default).lower()}')
            return default
        return value

    def number(self, *keys: str, default: float, positive: bool = False) -> float:
        """Return a number in [0, 2**40], or in (0, 2**40] if ``positive``."""
        key, value = self._find(keys)
        if value is None:
            self._assumed[key] = default
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_SIZE:
            self.problem(key, value, f"{key} must be a finite number <= 2**40", f'"{key}": {default}')
            return default
        if value < 0 or (positive and value == 0):
            self.problem(key, value, f"{key} {'>' if positive else '>='} 0", f'"{key}": {default}')
            return default
        return float(value)

    def text(self, *keys: str, default: str) -> str:
        """Return a non-empty string."""
        key, value = self._find(keys)
        if value is None:
            self._assumed[key] = default
            return default
        if not isinstance(value, str) or not value:
            self.problem(key, value, f"{key} must be a non-empty string", f'"{key}": "{default}"')
            return default
        return value

    def mapping(self, key: str) -> "Fields":
        """Return the nested mapping under ``key``, empty if absent; its problems belong to this one."""
        value = self._config.get(key)
        if value is not None and not isinstance(value, dict):
            self.problem(key, value, f"{key} must be an object", f"write {key} as {{...}} or leave it out")
        return self.part(value if isinstance(value, dict) else {}, f"{self._path}{key}.")

    def part(self, config: Mapping[str, object], path: str) -> "Fields":
        """Return another mapping of the same file, whose problems belong to this one."""
        other = Fields(config, path)
        other._problems, other._unsupported = self._problems, self._unsupported
        return other

    def items(self, key: str, accepts: Callable[[object], bool], rule: str) -> list[Any] | None:
        """Return a list whose members all satisfy ``accepts`` (``rule`` describes it); None if absent."""
        value = self._config.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            self.problem(key, value, f"{key} must be a list of {rule}", f"write {key} as [...]")
            return None
        bad = [item for item in value if not accepts(item)]
        if bad:
            self.problem(key, bad[0], f"{key} must hold {rule}", "mend or remove that entry")
            return None
        return value

    def has(self, key: str) -> bool:
        """Return whether the key is present with a value other than null."""
        return self._config.get(key) is not None

    def sound(self, *keys: str) -> bool:
        """Return whether these keys have no problem, so that rules between them can be checked."""
        broken = {problem.field for problem in self._problems}
        return not any(self._path + key in broken for key in keys)

    def divides(self, whole_key: str, whole: int, part_key: str, part: int, suggestion: str) -> None:
        """Record a problem unless ``whole`` is a multiple of ``part``."""
        if self.sound(whole_key, part_key) and whole % part:
            rule = f"{whole_key} % {part_key} = {whole} % {part} = {whole % part}, must be 0"
            self.problem(part_key, part, rule, suggestion)

    def aside(self) -> "Fields":
        """Return the same mapping and defaults with a separate list of problems."""
        return Fields(self._config, self._path)

    @property
    def found(self) -> tuple[Problem, ...]:
        """The problems that ``finish`` would raise."""
        problems = [*self._problems, *self._unsupported]
        return tuple({(problem.field, problem.rule): problem for problem in problems}.values())

    def problem(self, key: str, value: object, rule: str, suggestion: str) -> None:
        """Record a problem of ``key``."""
        self._problems.append(Problem(self._path + key, value, rule, suggestion))

    def unsupported(self, key: str, value: object, rule: str, suggestion: str) -> None:
        """Record a legal value that is not supported."""
        self._unsupported.append(Problem(self._path + key, value, rule, suggestion))

    def finish(self) -> None:
        """Raise all problems: InputError, or UnsupportedError if there are only unsupported values."""
        if self._problems:
            raise InputError(self.found)
        if self._unsupported:
            raise UnsupportedError(self._unsupported)

    def _find(self, keys: tuple[str, ...]) -> tuple[str, object]:
        return next(((key, self._config[key]) for key in keys if self.has(key)), (keys[0], None))

    def _whole(self, key: str, value: object, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, value, f"{key} must be a whole number", f'"{key}": a whole number >= {least}')
            return least
        if not least <= value <= most:
            self.problem(key, value, f"{least} <= {key} <= {most}", "check for a slip of the pen")
            return least
        return value
