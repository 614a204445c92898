"""Facts of serving engines that decide whether they run a plan: limits, and their words for values of a plan.

``engine-values.csv`` has the word of each engine for a value of a pool's field: an empty one is no word; weights are an
option with its value, or ``checkpoint``: the engine reads the format from a checkpoint that has it.
``engine-limits.csv`` has what an engine allows. Both give the place in the engine's source.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

VALUES, LIMITS = "engine-values.csv", "engine-limits.csv"
CHECKPOINT = "checkpoint"
YES = "yes"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Limits of one release of an engine by name, and its words by field and value."""

    name: str
    limits: Mapping[str, str]
    words: Mapping[tuple[str, str], str]

    @property
    def release(self) -> str:
        """Release of the facts and of the list of options."""
        return self.limits["release"]

    @property
    def full_name(self) -> str:
        """Name and release."""
        return f"{self.name} {self.release}"

    def allows(self, limit: str) -> bool:
        """Return whether the engine does what a limit asks."""
        return self.limits[limit] == YES

    def word(self, field: str, value: str) -> str | None:
        """Return the engine's word for a value of a field; None: it has none."""
        return self.words.get((field, value)) or None

    def values(self, field: str) -> tuple[str, ...]:
        """Return the values of a field that the engine has a word for."""
        return tuple(value for (name, value), word in self.words.items() if name == field and word)


@cache
def engine_facts(engine: str) -> EngineFacts:
    """Return the facts of an engine by its name."""
    limits = {row["limit"]: row[engine] for row in _rows(LIMITS)}
    words = {(row["field"], row["value"]): row[engine] for row in _rows(VALUES)}
    return EngineFacts(engine, limits, words)


def _rows(name: str) -> list[dict[str, str]]:
    text = files("meshwright.frameworks.serving").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
