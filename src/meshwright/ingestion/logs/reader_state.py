"""State of a log while it is read, whatever framework its lines are from.

If a file holds several runs, the last one counts, with all earlier starts of the same settings; a change of the
batch size (ramp-up) starts over. A run is out of memory if no restart that made steps again followed the message. A
line whose end is missing is read for that message only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.ingestion.logs.events import (
    NOTHING,
    Cells,
    Event,
    LogReader,
    Memory,
    MemoryKind,
    Restart,
    Setting,
    Step,
    Unit,
)
from meshwright.ingestion.logs.iteration_series import IterationSeries
from meshwright.ingestion.logs.lines import ran_out_of_memory, rank_mark

MOST_SETTINGS = 1000
LONGEST_SETTING = 2**14

Settings = dict[str, dict[str, str]]
"""Settings by name of the reader."""


@dataclass(slots=True)
class ReaderState:
    """State so far. ``earlier`` are the settings before a restart that has made no step yet."""

    readers: Mapping[str, LogReader]
    series: dict[tuple[str, Unit, bool], IterationSeries] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)
    earlier: Settings | None = None
    peaks_gib: dict[MemoryKind, float] = field(default_factory=dict)
    batch: int | None = None
    out_of_memory: bool = False
    restarted: bool = False
    other_runs: int = 0
    lines: int = 0
    unread_lines: int = 0

    def take(self, line: str, complete: bool) -> None:
        """Read one more line, without colours; ``complete``: its end was seen."""
        self.lines += 1
        known = ran_out_of_memory(line)
        if known:
            self.out_of_memory, self.restarted = True, False
        for name, reader in self.readers.items() if complete else ():
            for event in reader.events(line):
                known = True
                self._event(name, event, line)
        self.unread_lines += not known

    def cells(self) -> Cells:
        """Return the columns that the settings fill."""
        cells: Cells = {}
        for name, reader in self.readers.items():
            cells = reader.cells(self.settings.get(name, {})) | cells
        return cells

    def close(self) -> None:
        """End the log: a last start that made no step counts only if it ran out of memory."""
        if self.earlier is None:
            return
        if self.out_of_memory or not self._differs():
            self._join()
        else:
            self.settings, self.earlier = self.earlier, None

    def _event(self, name: str, event: Event, line: str) -> None:
        match event:
            case Step():
                self._step(name, event, rank_mark(line))
            case Setting():
                self._set(self.settings.setdefault(name, {}), event)
            case Memory():
                self.peaks_gib[event.kind] = max(event.gib, self.peaks_gib.get(event.kind, 0.0))
            case Restart():
                self._restart()

    def _set(self, settings: dict[str, str], event: Setting) -> None:
        """Store a setting; the last one counts, except an unset value."""
        fresh = event.key not in settings
        if len(settings) < MOST_SETTINGS if fresh else event.value not in NOTHING:
            settings[event.key] = event.value[:LONGEST_SETTING]

    def _restart(self) -> None:
        self.restarted = True
        if self.earlier is None and any(self.series.values()):
            self.earlier, self.settings = self.settings, {}
        for series in self.series.values():
            series.restart()

    def _step(self, name: str, step: Step, rank: str | None) -> None:
        if self.earlier is not None:
            self._join()
        if step.batch is not None and step.batch != self.batch:
            self.series.clear()
            self.batch = step.batch
        key = (name, step.unit, step.iteration is not None)
        again = self.series.setdefault(key, IterationSeries()).add(step.iteration, step.pace_s, rank)
        if again or self.restarted:
            self.out_of_memory = self.restarted = False

    def _join(self) -> None:
        """Merge the start before a restart with this one, or drop it if it was another run."""
        assert self.earlier is not None
        if self._differs():
            self.series.clear()
            self.peaks_gib.clear()
            self.batch = None
            self.other_runs += 1
        else:
            named = {*self.earlier, *self.settings}
            self.settings = {n: self.earlier.get(n, {}) | self.settings.get(n, {}) for n in named}
        self.earlier = None

    def _differs(self) -> bool:
        """Return whether both sides of the restart have a column with different values."""
        now, held = self.cells(), self.settings
        self.settings = self.earlier or {}
        before = self.cells()
        self.settings = held
        return any(column in before and before[column].value != fact.value for column, fact in now.items())
