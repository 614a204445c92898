"""The hybrid clock of an emulated rank: it sleeps modelled durations, and starts later if the wall clock is late.

Every rank keeps the modelled time ``now`` at which its compute stream is free. Work of d seconds that may begin at s
(the stamp of a message or of a collective) begins at

    start = max(now, s);   if the wall clock has passed start by more than the slack: start = wall time, a late start

and ends at start + d; the rank sleeps until then. While everything is on time the clock equals the simulator's, and the
operating system's overhead of each sleep does not accumulate. But if the program itself waits for something that the
model does not know of (a send that blocks, an order that delays another rank), the wall clock moves on and this clock
follows. A clock of stamps alone would hide that.

Modelled seconds times ``scale`` are seconds of wall time. All ranks count from one origin; CLOCK_MONOTONIC is one clock
for all processes of a host.
"""

from dataclasses import dataclass, field
from time import monotonic, sleep

from meshwright.runtime.emulation.emulation_result import Timed
from meshwright.schedules.action import Action, Kind


@dataclass
class Clock:
    """Modelled time of one rank, in seconds from the start of the step.

    ``data_parallel`` is the time at which the stream of gathers and reductions is free, ``links`` the time at which
    the link to each rank is free, ``gathered`` the end of each stage's gather, ``copies`` the time at which each
    direction of the host link is free. ``action`` is the action being executed.
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
        """Return the start of work that begins now, not before ``at``.

        If the wall clock has passed that time by more than the slack, the start is late and takes the wall's time.
        """
        self.now = max(self.now, at)
        self.starts += 1
        wall = self._wall()
        if wall > self.now + self.slack_s:
            self.late += 1
            self.now = wall
        return self.now

    def work(self, seconds: float, at: float = 0.0) -> float:
        """Sleep for work of ``seconds`` that begins now, not before ``at``; return its start."""
        start = self.begin(at)
        self.wait_until(start + seconds)
        return start

    def wait_until(self, moment: float) -> None:
        """Sleep until a modelled time and keep the compute stream busy until then."""
        self.now = max(self.now, moment)
        left = (self.now - self._wall()) * self.scale
        if left > 0:
            sleep(left)

    def record(self, action: Action, start: float, end: float, stream: str) -> None:
        """Record an action's start and end on a stream."""
        self.records.append(Timed(action, start, end, stream))

    def _wall(self) -> float:
        assert self.origin is not None, "the clock has not been started"
        return (monotonic() - self.origin) / self.scale
