"""A job under a policy of recovery on nodes that fail, played event by event."""

import heapq
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Case:
    """A job: nodes, spare ones, those of a unit that works alone, and seconds of everything.

    ``shared``: the share of failures after which no unit goes on; 1 for policies that always start again.
    ``mtbf_s`` is of the whole job while all its nodes work.
    """

    policy: str
    nodes: int
    spare_nodes: int
    unit: int
    mtbf_s: float
    repair_s: float
    work_s: float
    pause_s: float
    restart_s: float
    step_s: float = 1.0
    by_hand_s: float = 0.0
    shrink_s: float = 0.0
    shared: float = 1.0

    def working(self, away):
        """Nodes that work while so many are away."""
        return self.unit * min(self.nodes // self.unit, (self.nodes + self.spare_nodes - away) // self.unit)


class PlayedJob:
    """The clock, work that is kept and work since the last checkpoint, in seconds of the whole job."""

    def __init__(self, case: Case, draw: Random):
        self.case, self.draw = case, draw
        self.clock = self.kept = self.since = self.segment = 0.0
        self.away: list[float] = []

    @property
    def working(self):
        """Nodes that work now."""
        return self.case.working(len(self.away))

    def share(self, failures: int) -> float:
        """Return the share of the time that became kept work."""
        for _ in range(failures):
            self._work_until_failure()
        return self.kept / self.clock

    def _work_until_failure(self):
        """Go on until a node fails, and take it away."""
        while True:
            until = self.draw.expovariate(self.working / self.case.nodes / self.case.mtbf_s)
            back = self.away[0] - self.clock if self.away else float("inf")
            before = self.working
            self._run(min(until, back))
            if until < back:
                break
            heapq.heappop(self.away)
            if self.working > before:
                self._grow()
        self._fail()

    def _run(self, seconds):
        """Work and save for some seconds."""
        speed, end = self.working / self.case.nodes, self.clock + seconds
        while self.clock < end:
            to_work = max(0.0, self.case.work_s - self.segment)
            worked = min(end - self.clock, to_work)
            self.since += worked * speed
            self.segment += worked
            self.clock += worked
            left = self.case.work_s + self.case.pause_s - self.segment
            if end - self.clock < left:
                self.segment += end - self.clock
                self.clock = end
                return
            self.clock += left
            self._save()

    def _save(self):
        self.kept, self.since, self.segment = self.kept + self.since, 0.0, 0.0

    def _fail(self):
        case, units = self.case, self.working // self.case.unit
        heapq.heappush(self.away, self.clock + self.draw.expovariate(1 / case.repair_s))
        if units > 1 and self.draw.random() >= case.shared:
            lost_s = case.step_s + 2 * case.shrink_s + case.restart_s / (case.nodes // case.unit)
            self.since -= min(self.since, lost_s * self.working / case.nodes)
            return
        self.since = self.segment = 0.0
        self._idle(self.clock + case.by_hand_s)
        while not self.working:
            self._idle(self.away[0])
        self._start()

    def _idle(self, until):
        self.clock = max(self.clock, until)
        while self.away and self.away[0] <= self.clock:
            heapq.heappop(self.away)

    def _grow(self):
        if self.case.policy == "replan":
            self._save()
            self.clock += self.case.pause_s
            self._start()

    def _start(self):
        """Start again, which may fail, and then begins again."""
        until = self.draw.expovariate(self.working / self.case.nodes / self.case.mtbf_s)
        end = self.clock + min(until, self.case.restart_s)
        before = self.working
        self._idle(end)
        if until < self.case.restart_s:
            self._fail()
        elif self.working > before:
            self._grow()
