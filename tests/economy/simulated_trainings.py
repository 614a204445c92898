"""Whole trainings that are played failure by failure: what draws of a training are held against."""

from random import Random

import numpy as np
from simulated_failing_job import Job, played_until


def played_trainings(course, step_s, count, seed, spread=0.1):
    """Days of ``count`` trainings, each with its own error of the step time, failure rate and failures."""
    draw, model = Random(seed), course.outages
    days = []
    for _ in range(count):
        step = step_s * np.exp(draw.gauss(0, spread))
        rate = draw.gammavariate(model.events + 0.5, 1 / model.events) if model.events else 1.0
        work_s = model.work_s(step)
        job = Job(
            work_s, model.write_s, model.restart_s, model.mtbf_s / rate, model.repair_s, model.spare_nodes
        )
        needed_s = course.steps * step
        end = played_until(lambda so_far, needed_s=needed_s: so_far.kept >= needed_s, job, draw)
        days.append((end.clock - (end.kept - needed_s)) / 86400)
    return np.array(days)
