"""A job on nodes that fail, played failure by failure: what formulas of goodput are held against."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Job:
    """Seconds of everything; ``mtbf_s`` is of the whole job while all its nodes work."""

    work_s: float
    write_s: float
    restart_s: float
    mtbf_s: float
    repair_s: float
    spare_nodes: int


@dataclass
class Played:
    """Seconds of a job so far, of its kept work, and in which too few nodes were left; and its failures."""

    clock: float = 0.0
    kept: float = 0.0
    stopped: float = 0.0
    failures: int = 0


def played_until(
    ended: Callable[[Played], bool], job: Job, draw: Random, repair=lambda repair_s: repair_s
) -> Played:
    """The job when it has ended. ``repair`` draws how long one takes."""
    so_far, away, starting = Played(), [], False
    until_failure = draw.expovariate(1 / job.mtbf_s)
    while not ended(so_far):
        phase_s = job.restart_s if starting else job.work_s + job.write_s
        if until_failure > phase_s:
            so_far.clock, until_failure = so_far.clock + phase_s, until_failure - phase_s
            so_far.kept += 0.0 if starting else job.work_s
            starting = False
            continue
        so_far.clock, so_far.failures, starting = so_far.clock + until_failure, so_far.failures + 1, True
        until_failure = draw.expovariate(1 / job.mtbf_s)
        heapq.heappush(away, so_far.clock + repair(job.repair_s))
        while away and away[0] <= so_far.clock:
            heapq.heappop(away)
        if len(away) > job.spare_nodes:
            back = heapq.heappop(away)
            so_far.stopped, so_far.clock = so_far.stopped + back - so_far.clock, back
    return so_far


def played(job: Job, failures: int, draw: Random, repair) -> tuple[float, float]:
    """(share of the time that became kept work, share in which too few nodes were left), over so many failures."""
    end = played_until(lambda so_far: so_far.failures == failures, job, draw, repair)
    return end.kept / end.clock, end.stopped / end.clock
