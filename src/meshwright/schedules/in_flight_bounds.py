"""The most micro-batches a rank may have in flight, for lower bounds of a schedule's length.

An automatic schedule has a limit, or goes through its stages unit by unit and holds a unit. Any other has the same
lists whatever the times, and its first rounds show what they hold, or all of them where forward passes are delayed.
Counted are passes of stages until B or I ends, V for a micro-batch on a whole rank. A spread vocabulary delays
backward passes, by a micro-batch for each of its barriers or by at most P of them.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate

from meshwright.play.in_flight import OF_STAGES
from meshwright.schedules.action import Action
from meshwright.schedules.choice import ScheduleChoice

ROUNDS = 4
"""Rounds of micro-batches behind which no list holds more."""


def in_flight_bounds(choice: ScheduleChoice, ranks: int, micro_batches: int, chunks: int) -> tuple[int, ...]:
    """Per rank, as many forward passes at most; never more than there are."""
    everything = micro_batches * chunks
    if choice.form is not None:
        usual = in_flight_bounds(replace(choice, vocabulary=None), ranks, micro_batches, chunks)
        more = chunks * (ranks if choice.form.only else choice.form.barriers)
        return tuple(min(everything, most + more) for most in usual)
    limit = choice.kind.default_memory_limit
    if limit is not None:
        limit = choice.memory_limit if "memory_limit" in choice.heeded else limit
        return (min(everything, int((limit or 0) * ranks * chunks + 1e-9)),) * ranks
    if "in_flight" in choice.heeded:
        return _first_rounds_hold(choice, ranks, micro_batches, chunks)
    declared = [choice.declared_in_flight(rank, ranks, micro_batches, chunks) for rank in range(ranks)]
    known = [most for most in declared if most is not None]
    if len(known) == ranks:
        return tuple(known)
    few = min(micro_batches, (1 if choice.kind.automatic else ROUNDS) * choice.period(ranks))
    return _first_rounds_hold(choice, ranks, few, chunks)


@lru_cache(maxsize=4096)
def _first_rounds_hold(
    choice: ScheduleChoice, ranks: int, micro_batches: int, chunks: int
) -> tuple[int, ...]:
    return tuple(map(_waiting, choice.lists(ranks, micro_batches, chunks)))


def _waiting(actions: Iterable[Action]) -> int:
    return max(accumulate(OF_STAGES[action.kind][0] for action in actions))
