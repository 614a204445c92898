"""Play a schedule's lists on arrays of stage times: the general form for any schedule, exact.

The order in which actions can run does not depend on durations, so it is found once per (schedule, P, M, V) and
then each action is one maximum and one sum over all plans at once. Beyond ``ROUNDS``·P micro-batches the schedule
is in its periodic regime (a max-plus linear system; Baccelli et al. 1992, theorem 3.28) and the makespan grows
by a constant for every P further ones: it is extrapolated from the last two rounds, and by no less than the
work of the busiest rank, which a pipeline with one slow stage comes to only after many rounds.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.program.mesh import Ints
from meshwright.schedule import SCHEDULES
from meshwright.schedule.action import Action
from meshwright.schedule.timeline import predecessor

Array = NDArray[np.float64]
ROUNDS = 3


class Step(NamedTuple):
    """One action in an order that respects all dependencies."""

    stage: int
    rank: int
    forward: bool
    source: int | None
    crosses: bool


def played_seconds(
    schedule: str,
    forward: Array,
    backward: Array,
    message: Array,
    micro_batches: NDArray[np.int64],
    ranks: int,
) -> Array:
    """Makespan from the first start to the last end: (n, K), (n, K), (n,), (n,) → (n,)."""
    result = np.empty(len(message))
    for count in np.unique(micro_batches):
        rows = np.flatnonzero(micro_batches == count)
        passes = forward[rows], backward[rows]
        arguments = schedule, *passes, message[rows]
        played = int(periodic_micro_batches(int(count), ranks))
        end = _play(*arguments, played, ranks)
        if played < count:
            before = _play(*arguments, played - ranks, ranks)
            end += (count - played) * np.maximum((end - before) / ranks, _busiest(passes, ranks))
        result[rows] = end
    return result


def _busiest(passes: tuple[Array, ...], ranks: int) -> Array:
    """Seconds of one micro-batch on the rank that has most to do."""
    forward, backward = passes
    return (forward + backward).reshape(len(forward), -1, ranks).sum(1).max(1)


def periodic_micro_batches(micro_batches: Ints, ranks: int) -> NDArray[np.int64]:
    """How many are played: all, or as many as keep the remainder by P and reach the periodic regime."""
    few = np.asarray(micro_batches) <= (ROUNDS + 1) * ranks
    return np.where(few, micro_batches, ROUNDS * ranks + np.asarray(micro_batches) % ranks)


def _play(
    schedule: str, forward: Array, backward: Array, message: Array, micro_batches: int, ranks: int
) -> Array:
    steps = action_order(schedule, ranks, micro_batches, forward.shape[1] // ranks)
    clock = [np.zeros(len(message)) for _ in range(ranks)]
    ends: list[Array] = []
    for step in steps:
        start = clock[step.rank]
        if step.source is not None:
            ready = ends[step.source]
            start = np.maximum(start, ready + message if step.crosses else ready)
        times = forward if step.forward else backward
        clock[step.rank] = start + times[:, step.stage]
        ends.append(clock[step.rank])
    return np.maximum.reduce(clock)


@lru_cache(maxsize=256)
def action_order(schedule: str, ranks: int, micro_batches: int, chunks: int) -> tuple[Step, ...]:
    """All actions of a schedule, each after its list predecessor and its data."""
    lists = SCHEDULES[schedule].generate(ranks, micro_batches, chunks)
    stages = ranks * chunks
    position, where = [0] * ranks, dict[tuple[str, int, int], tuple[int, int]]()
    steps: list[Step] = []
    total = sum(map(len, lists))
    while len(steps) < total:
        for rank, actions in enumerate(lists):
            while position[rank] < len(actions):
                action = actions[position[rank]]
                source = predecessor(action, stages)
                if source is not None and source not in where:
                    break
                steps.append(_step(action, rank, where[source] if source else None))
                assert action.stage is not None
                assert action.micro_batch is not None
                where[action.kind, action.stage, action.micro_batch] = (len(steps) - 1, rank)
                position[rank] += 1
    return tuple(steps)


def _step(action: Action, rank: int, source: tuple[int, int] | None) -> Step:
    assert action.stage is not None
    index, other = source if source else (None, rank)
    return Step(action.stage, rank, action.kind == "F", index, other != rank)
