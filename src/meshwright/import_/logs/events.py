"""What the lines of a training log say, one event a finding, and what every reader of a framework's lines is.

A reader is handed one line at a time, without colours and line end, and remembers nothing: lines of several ranks are
interleaved, cut and repeated, so that only what stands in one line can be trusted. What several lines must say
together (a sharding strategy, a layout) is a reader's ``cells``, over all settings that it found.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, Protocol

from meshwright.import_.foreign import Fact
from meshwright.units import GIB

Unit = Literal["step", "token of a device", "sample"]
"""What the pace of a log is measured by: seconds of a step, of a token of one device, or of a sequence."""
MemoryKind = Literal["max allocated", "max reserved"]
"""The allocator's peak of what tensors took, and of what it held with its cache."""
NOTHING = ("", "None", "null")
"""How frameworks write that an option is not set."""
FASTEST_S, SLOWEST_S = 1e-9, 1e7
"""A pace beyond these is a damaged line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reported iteration; ``pace_s`` is seconds per ``unit``. ``batch``: sequences, where the line says it."""

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
    """A process began: what follows is a new start, or another run in the same file."""


Event = Step | Setting | Memory | Restart
Settings = Mapping[str, str]
Cells = dict[str, Fact]
"""Cells of a table of runs by column, as text, each with the words of the log."""


class LogReader(Protocol):
    """Recognises the lines of one framework."""

    looked_for: str
    """An example of the line that gives a step time, for the message where no line does."""

    def events(self, line: str) -> Iterator[Event]:
        """What a line says; nothing for a line of another framework."""
        ...

    def cells(self, settings: Settings) -> Cells:
        """The columns that these settings fill, values of hostile text included; empty without settings."""
        ...


def pace(per_second: str) -> float | None:
    """Seconds of each of the units that a second has; None for what is no rate."""
    count = number(per_second)
    return _plausible(1 / count) if count else None


def duration(text: str, unit_s: float = 1.0) -> float | None:
    """Seconds, of a number of units; None for what is no duration."""
    count = number(text)
    return _plausible(count * unit_s) if count else None


def number(text: str) -> float | None:
    """A finite number above zero, thousands with commas included; None for anything else."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if isfinite(value) and value > 0 else None


def _plausible(value: float) -> float | None:
    return value if FASTEST_S < value < SLOWEST_S else None


def peak(amount: str, unit_bytes: float, kind: str) -> Iterator[Memory]:
    """A peak of so many units, of a kind whose name ends in allocated or reserved."""
    count = number(amount)
    if count is not None:
        yield Memory(
            count * unit_bytes / GIB, "max allocated" if kind.endswith("allocated") else "max reserved"
        )


def whole(settings: Settings, *names: str) -> int | None:
    """The first of these settings that is a whole number above zero; ``8.0`` is one."""
    for name in names:
        value = number(settings.get(name, ""))
        if value is not None and value == int(value):
            return int(value)
    return None


def said(settings: Settings, *names: str) -> str | None:
    """The first of these settings that is set to something, quotes taken off."""
    for name in names:
        value = settings.get(name, "").strip("'\"")
        if value not in NOTHING:
            return value
    return None


def is_on(settings: Settings, name: str) -> bool:
    """Whether a switch is on; off where nothing is said."""
    return settings.get(name, "").lower() == "true"
