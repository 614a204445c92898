"""The hybrid clock of an emulated rank: modelled durations, slept, and what comes late counts as late.

Every rank keeps the modelled time ``now`` at which its compute stream is free. Work of d seconds that may begin at s
(the stamp of a message or of a collective) begins at

    start = max(now, s);   if the wall has passed start by more than the slack: start = the wall's time, a late start

and ends at start + d, until which the rank sleeps. As long as all is in time the clock is the simulator's, and what the
operating system adds to a sleep does not add up. But where the program itself waits for something that the model
does not know of (a send that blocks, an order that holds another rank up), the wall moves on and the clock follows. A
clock of stamps alone would hide that.

Modelled seconds times ``scale`` are seconds of the wall. All ranks count from one origin; CLOCK_MONOTONIC is one clock
for all processes of a host.
"""

from dataclasses import dataclass, field
from time import monotonic, sleep

from meshwright.runtime.emulation.record import Timed
from meshwright.schedule.action import Action, Kind


@dataclass
class Clock:
    """Modelled time of one rank, in seconds from the start of the step.

    ``data_parallel`` is when the stream of gathers and reductions is free, ``links`` when the way to another rank is,
    ``gathered`` until when a stage's gather runs, ``copies`` when each direction of the way to the host is free.
    ``action`` is the action that is being executed.
    """

    scale: float
    slack_s: float
    origin: float | None = None
    now: float = 0.0
    data_parallel: float = 0.0
    links: dict[int, float] = field(default_factory=dict)
    gathered: dict[int, float] = field(default_factory=dict)
    copies: dict[Kind, float] = field(default_factory=dict)
    last_pass: tuple[float, float] = (0.0, 0.0)
    action: Action | None = None
    starts: int = 0
    late: int = 0
    records: list[Timed] = field(default_factory=list)

    def begin(self, at: float = 0.0) -> float:
        """When work that begins here and not before ``at`` starts; late where the wall says so."""
        self.now = max(self.now, at)
        self.starts += 1
        wall = self._wall()
        if wall > self.now + self.slack_s:
            self.late += 1
            self.now = wall
        return self.now

    def work(self, seconds: float, at: float = 0.0) -> float:
        """Begin, work and sleep that long; the start."""
        start = self.begin(at)
        self.wait_until(start + seconds)
        return start

    def wait_until(self, moment: float) -> None:
        """Sleep until a modelled moment; the compute stream is not free before."""
        self.now = max(self.now, moment)
        left = (self.now - self._wall()) * self.scale
        if left > 0:
            sleep(left)

    def record(self, action: Action, start: float, end: float, stream: str) -> None:
        """Note what an action took."""
        self.records.append(Timed(action, start, end, stream))

    def _wall(self) -> float:
        assert self.origin is not None, "the clock has not been started"
        return (monotonic() - self.origin) / self.scale
