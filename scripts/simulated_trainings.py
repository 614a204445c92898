"""Play whole trainings failure by failure, many at a time, as a check of predicted probabilities.

A training works in segments of ``work_s`` seconds and writes a checkpoint after each. A failure throws the unwritten
work away; a restart, which may fail too, follows as soon as enough nodes are there: a spare node, else the first that
is repaired. All trainings move on from one failure to the next together, in arrays. The same rules, one training at a
time and segment by segment: ``tests/economy/simulated_failing_job.py``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from meshwright.economy.goodput import FailureModel
from meshwright.economy.training_cost import TrainingCost
from meshwright.units import DAY_S

Floats = NDArray[np.float64]
MOST_FAILURES = 100_000
"""A training with more failures has no end."""


def played_seconds(
    needed_s: Floats, work_s: Floats, mtbf_s: Floats, model: FailureModel, gaps: Callable[[int], Floats]
) -> Floats:
    """Return how long trainings with ``needed_s`` seconds of work take, (n,); infinite for one without an end.

    ``gaps`` returns the time from failure number n to the next one over ``mtbf_s``, for every training, (n,).
    """
    seconds = np.full(len(needed_s), np.inf)
    left = np.arange(len(needed_s))
    clock, kept = np.zeros(len(left)), np.zeros(len(left))
    back = np.full((len(left), model.spare_nodes + 1), -np.inf)
    for failures in range(MOST_FAILURES):
        restart_s = model.restart_s if failures else 0.0
        gap_s = gaps(failures)[left] * mtbf_s[left]
        work, segment_s = work_s[left], work_s[left] + model.write_s
        whole = np.maximum(0.0, np.floor((gap_s - restart_s) / segment_s))
        to_go = np.ceil((needed_s[left] - kept) / work)
        ended = whole >= to_go
        surplus_s = kept + to_go * work - needed_s[left]
        seconds[left[ended]] = (clock + restart_s + to_go * segment_s - surplus_s)[ended]
        left, clock, kept, back = (each[~ended] for each in (left, clock + gap_s, kept + whole * work, back))
        if not len(left):
            break
        clock = _with_enough_nodes(clock, back, model.repair_s)
    return seconds


def _with_enough_nodes(clock: Floats, back: Floats, repair_s: float) -> Floats:
    """Return when each job goes on after a failure; ``back`` has when failed nodes return, (n, spare nodes + 1)."""
    rows = np.arange(len(clock))
    back[rows, back.argmin(axis=1)] = clock + repair_s
    first = back.min(axis=1)
    return np.asarray(np.maximum(clock, first), dtype=np.float64)


def played_days(course: TrainingCost, step_s: Floats, draw: np.random.Generator) -> Floats:
    """Return the days of trainings with these step times, each with its own failure rate and failures, (n,)."""
    needed_s, model, count = course.steps * step_s, course.outages, len(step_s)
    if model is None or model.interval_s == np.inf:
        return np.asarray(needed_s / DAY_S, dtype=np.float64)
    rate = draw.gamma(model.events + 0.5, 1 / model.events, count) if model.events else np.ones(count)
    work_s = np.maximum(model.interval_s, step_s)
    played = played_seconds(
        needed_s, work_s, model.mtbf_s / rate, model, lambda _: draw.exponential(size=count)
    )
    return np.asarray(played / DAY_S, dtype=np.float64)
