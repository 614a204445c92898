"""Whole trainings that are played failure by failure: what draws of a training are held against."""

import heapq
from random import Random

import numpy as np


def played_trainings(course, step_s, count, seed, spread=0.1):
    """Days of ``count`` trainings, each with its own error of the step time, failure rate and failures."""
    draw, model = Random(seed), course.outages
    days = []
    for _ in range(count):
        step = step_s * np.exp(draw.gauss(0, spread))
        rate = draw.gammavariate(model.events + 0.5, 1 / model.events) if model.events else 1.0
        days.append(_played(course, step, model.mtbf_s / rate, draw) / 86400)
    return np.array(days)


def _played(course, step_s, mtbf_s, draw):
    """Seconds until all steps are kept: a failure loses what was not written, and waits where no spare node is left."""
    model, left_s = course.outages, course.steps * step_s
    clock, away, starting = 0.0, [], False
    until_failure = draw.expovariate(1 / mtbf_s)
    while left_s > 0:
        work_s = min(model.work_s(step_s), left_s)
        phase_s = model.restart_s if starting else work_s + model.write_s
        if until_failure > phase_s:
            clock, until_failure = clock + phase_s, until_failure - phase_s
            left_s -= 0.0 if starting else work_s
            starting = False
            continue
        clock, starting = clock + until_failure, True
        until_failure = draw.expovariate(1 / mtbf_s)
        heapq.heappush(away, clock + model.repair_s)
        while away and away[0] <= clock:
            heapq.heappop(away)
        if len(away) > model.spare_nodes:
            clock = heapq.heappop(away)
    return clock
