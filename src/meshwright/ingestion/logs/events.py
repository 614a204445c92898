"""Events in the lines of a training log, and the interface of a framework's log reader.

A reader gets one line at a time, without colours and line end, and keeps no state: lines of several ranks are
interleaved, cut and repeated, so only what stands in one line can be trusted. Facts that need several lines (a sharding
strategy, a layout) come from a reader's ``cells``, over all settings that it found.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, Protocol

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.units import GIB

Unit = Literal["step", "token of a device", "sample"]
"""Unit of a log's pace: seconds of a step, of a token of one device, or of a sequence."""
MemoryKind = Literal["max allocated", "max reserved"]
"""The allocator's peak of tensors, or of tensors and its cache."""
NOTHING = ("", "None", "null")
"""Frameworks' spellings of an option that is not set."""
FASTEST_S, SLOWEST_S = 1e-9, 1e7
"""Plausible range of a pace; beyond it the line is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reported iteration; ``pace_s`` is seconds per ``unit``. ``batch``: sequences, if the line has them."""

    iteration: int | None
    pace_s: float
    unit: Unit = "step"
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """An option or a fact of the run, in the framework's words."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Memory:
    """A peak of one device."""

    gib: float
    kind: MemoryKind


@dataclass(frozen=True, slots=True)
class Restart:
    """A process began: a new start follows, or another run in the same file."""


Event = Step | Setting | Memory | Restart
Settings = Mapping[str, str]
Cells = dict[str, Fact]
"""Cells of a table of runs by column, as text, each with the words of the log."""


class LogReader(Protocol):
    """Recogniser of the lines of one framework."""

    looked_for: str
    """An example of a line with a step time, for the error message if there is none."""

    def events(self, line: str) -> Iterator[Event]:
        """Yield the events of a line; none for a line of another framework."""
        ...

    def cells(self, settings: Settings) -> Cells:
        """Return the columns that these settings fill, which may hold any text; empty without settings."""
        ...


def seconds_per_unit(per_second: str) -> float | None:
    """Return the seconds per unit from units per second; None if it is not a rate."""
    count = number(per_second)
    return _plausible(1 / count) if count else None


def duration(text: str, unit_s: float = 1.0) -> float | None:
    """Return the seconds of a number of units; None if it is not a duration."""
    count = number(text)
    return _plausible(count * unit_s) if count else None


def number(text: str) -> float | None:
    """Return a finite number above zero, also with commas for thousands; None for anything else."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if isfinite(value) and value > 0 else None


def _plausible(value: float) -> float | None:
    return value if FASTEST_S < value < SLOWEST_S else None


def peak(amount: str, unit_bytes: float, kind: str) -> Iterator[Memory]:
    """Yield a peak of so many units; the name of its kind ends in allocated or reserved."""
    count = number(amount)
    if count is not None:
        yield Memory(
            count * unit_bytes / GIB, "max allocated" if kind.endswith("allocated") else "max reserved"
        )


def whole_number(settings: Settings, *names: str) -> int | None:
    """Return the first of these settings that is a whole number above zero; ``8.0`` is one."""
    for name in names:
        value = number(settings.get(name, ""))
        if value is not None and value == int(value):
            return int(value)
    return None


def first_text(settings: Settings, *names: str) -> str | None:
    """Return the first of these settings that is set, without quotes."""
    for name in names:
        value = settings.get(name, "").strip("'\"")
        if value not in NOTHING:
            return value
    return None


def is_on(settings: Settings, name: str) -> bool:
    """Return whether a switch is on; off if it is not set."""
    return settings.get(name, "").lower() == "true"
