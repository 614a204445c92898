"""A job on nodes that fail, played failure by failure: what formulas of goodput are held against."""

import heapq
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


def played(job: Job, failures: int, draw: Random, repair) -> tuple[float, float]:
    """(share of the time that became kept work, share in which too few nodes were left), over so many failures.

    ``repair`` draws how long one takes.
    """
    clock = kept = stopped = 0.0
    away: list[float] = []
    until_failure = draw.expovariate(1 / job.mtbf_s)
    starting = False
    while failures:
        phase_s = job.restart_s if starting else job.work_s + job.write_s
        if until_failure > phase_s:
            clock, until_failure = clock + phase_s, until_failure - phase_s
            kept += 0.0 if starting else job.work_s
            starting = False
            continue
        clock, failures, starting = clock + until_failure, failures - 1, True
        until_failure = draw.expovariate(1 / job.mtbf_s)
        heapq.heappush(away, clock + repair(job.repair_s))
        while away and away[0] <= clock:
            heapq.heappop(away)
        if len(away) > job.spare_nodes:
            back = heapq.heappop(away)
            stopped, clock = stopped + back - clock, back
    return kept / clock, stopped / clock
