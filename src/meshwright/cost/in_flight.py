"""How many micro-batches of each stage a rank holds at once.

With one stage a rank the schedule declares the peak, which needs no lists (GPipe's are as long as the batch). With
more, a rank's list is walked: F holds one more of its stage, B or W one less. What is held just before a release is a
candidate for the peak. Which one is the peak depends on the sizes of the stages: peak bytes = max over candidates of
Σ count·bytes. Stages of equal size count together, so that few candidates remain. Exact, and the same for any
schedule; declared peaks are held to the lists by a test.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshwright.schedule import SCHEDULES
from meshwright.schedule.action import Action

Counts = NDArray[np.int64]


@lru_cache(maxsize=4096)
def in_flight(schedule: str, ranks: int, micro_batches: int, kinds: tuple[int, ...]) -> tuple[Counts, ...]:
    """Per rank an array (candidates, kinds of stages) of counts; ``kinds`` has the kind of every stage.

    Stage s is on rank s mod ``ranks``.
    """
    one_hot = np.eye(max(kinds) + 1, dtype=np.int64)[list(kinds)]
    held = _held(schedule, ranks, micro_batches, len(kinds) // ranks)
    return tuple(np.unique(counts @ one_hot[rank::ranks], axis=0) for rank, counts in enumerate(held))


@lru_cache(maxsize=1024)
def _held(schedule: str, ranks: int, micro_batches: int, chunks: int) -> tuple[Counts, ...]:
    kind = SCHEDULES[schedule]
    if chunks == 1:
        return tuple(np.array([[kind.in_flight(rank, ranks, micro_batches, 1)]]) for rank in range(ranks))
    lists = kind.generate(ranks, micro_batches, chunks)
    return tuple(held_counts(actions, ranks, chunks) for actions in lists)


def held_counts(actions: list[Action], ranks: int, chunks: int) -> Counts:
    """The candidates of one rank's list: (candidates, chunks)."""
    changes = np.zeros((len(actions), chunks), dtype=np.int64)
    for position, action in enumerate(actions):
        assert action.stage is not None
        changes[position, action.stage // ranks] = {"F": 1, "B": -1, "W": -1}.get(action.kind, 0)
    held = np.cumsum(changes, 0)
    before_release = np.flatnonzero(changes.sum(1) < 0) - 1
    return np.unique(held[before_release], axis=0)


def sufficient(schedule: str, ranks: int, micro_batches: Counts) -> Counts:
    """Micro-batches that suffice to see the peak: the steady state of a schedule repeats."""
    rounds = SCHEDULES[schedule].steady_rounds
    return micro_batches if rounds is None else np.minimum(micro_batches, rounds * ranks)
