"""Micro-batches in flight: the number that a rank holds of each of its stages at once.

With one stage a rank a schedule may declare the peak, which needs no lists (GPipe's are as long as the batch). Else a
rank's list is walked (``play/in_flight.py``). Which moment is the peak depends on the sizes of the stages: peak bytes =
max over candidates of Σ count·bytes. Stages of equal size count together, so that few candidates remain. Exact, and the
same for any schedule; declared peaks are held to the lists by a test. What is on the host counts apart.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.pipeline_time.offload_copies import lists_with_offload_copies
from meshwright.cost.pipeline_time.time_action_lists import stages_of_ranks
from meshwright.plans.arrays.distinct_rows import unique_rows
from meshwright.play.in_flight import changes_along, host_changes
from meshwright.schedules.action import Action
from meshwright.schedules.activation_offload import OffloadedStages
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import StageTimes

Counts = NDArray[np.int64]


@lru_cache(maxsize=4096)
def in_flight(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    kinds: tuple[int, ...],
    times: StageTimes | None = None,
    copied: OffloadedStages | None = None,
) -> tuple[Counts, ...]:
    """Per rank an array (candidates, 2·kinds of stages) of counts; ``kinds`` has the kind of every stage.

    The first half counts what waits for B or I, the second what waits for W; where anything is ``copied`` there is a
    third part, what of the first is on the host. Where the vocabulary is spread, its shares are a kind of their own,
    the last one.
    """
    chunks = len(kinds) // ranks
    if schedule.form:
        kinds += (max(kinds) + 1,) * ranks
    one_hot = np.eye(max(kinds) + 1, dtype=np.int64)[list(kinds)]
    at = _parts_of_ranks(schedule, ranks, chunks)
    held = _held(schedule, ranks, micro_batches, chunks, times, copied)
    return tuple(
        unique_rows(
            np.concatenate(
                [counts[:, third] @ one_hot[at[:, rank]] for third in range(3 if copied else 2)], 1
            )
        )
        for rank, counts in enumerate(held)
    )


@lru_cache(maxsize=1024)
def _held(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    chunks: int,
    times: StageTimes | None,
    copied: OffloadedStages | None,
) -> tuple[Counts, ...]:
    declared = [schedule.declared_in_flight(rank, ranks, micro_batches, 1) for rank in range(ranks)]
    if chunks == 1 and None not in declared and copied is None:
        return tuple(np.array([[[count], [0], [0]]]) for count in declared)
    lists = lists_with_offload_copies(schedule, ranks, micro_batches, chunks, times, copied)
    at = _parts_of_ranks(schedule, ranks, chunks)
    return tuple(held_counts(actions, at[:, rank].tolist()) for rank, actions in enumerate(lists))


def _parts_of_ranks(schedule: ScheduleChoice, ranks: int, chunks: int) -> Counts:
    """Return the stages of every rank, then its share of a spread vocabulary: (V or V + 1, P)."""
    at = stages_of_ranks(schedule, ranks, chunks)
    return np.vstack([at, ranks * chunks + np.arange(ranks)]) if schedule.form else at


@lru_cache(maxsize=1024)
def peak_passes_on_host(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    kinds: tuple[int, ...],
    times: StageTimes | None,
    copied: OffloadedStages,
) -> tuple[Counts, ...]:
    """Per rank an array (candidates, kinds of stages): passes on the host, from OFFLOAD until they are needed."""
    chunks = len(kinds) // ranks
    one_hot = np.eye(max(kinds) + 1, dtype=np.int64)[list(kinds)]
    lists = lists_with_offload_copies(schedule, ranks, micro_batches, chunks, times, copied)
    found = []
    for actions in lists:
        changes = [np.zeros_like(one_hot[0]), *(n * one_hot[stage] for stage, n in host_changes(actions))]
        found.append(unique_rows(np.cumsum(changes, 0)))
    return tuple(found)


def held_counts(actions: Sequence[Action], stages: Sequence[int]) -> Counts:
    """Return the candidates of one rank's list: (candidates, 3, chunks); ``stages`` are the rank's."""
    chunk = {stage: index for index, stage in enumerate(stages)}
    along = list(changes_along(actions))
    changes = np.zeros((len(along), 3, len(stages)), dtype=np.int64)
    changes[range(len(along)), :, [chunk[one.stage] for one in along]] = [one[2:] for one in along]
    held = np.cumsum(changes, 0)
    if changes[:, 2].any():
        return unique_rows(held)
    before_release = np.flatnonzero(changes.min((1, 2)) < 0) - 1
    after_turn = np.flatnonzero(changes.max((1, 2)) + changes.min((1, 2)) == 0)
    return unique_rows(held[np.union1d(before_release, after_turn)])


def sufficient(
    schedule: ScheduleChoice, ranks: int, micro_batches: Counts, copied: OffloadedStages | None = None
) -> Counts:
    """Micro-batches that suffice to see the peak: the steady state of a schedule repeats.

    With copies it does so when the passes before which they begin have passed, too.
    """
    rounds = schedule.steady_rounds
    if rounds is None:
        return micro_batches
    more = 0 if copied is None else 1 + ceil((copied.ahead + 3) / ranks)
    return np.minimum(micro_batches, (rounds + more) * ranks)
