"""The signature that all schedules share.

A generator takes the number of pipeline ranks P, of micro-batches M and of chunks (stages) per rank V and
returns one list of F, B, I, W actions per pipeline rank. Stage s is chunk s // P of rank s % P unless the
generator's ``placement`` says otherwise. Messages are not in these lists: ``program/`` inserts them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from meshwright.schedule.action import Action


class Generator(Protocol):
    """``generator(ranks, micro_batches, chunks)`` → one action list per rank."""

    def __call__(self, ranks: int, micro_batches: int, chunks: int) -> list[list[Action]]:
        """Return the lists; arguments have passed the rules of ``plan/check_pipeline.py``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleKind:
    """A schedule as the table of schedules lists it.

    ``chunked`` says that it wants several stages per rank; ``micro_batch_multiple`` is a function of the
    pipeline ranks that must divide the number of micro-batches. ``steady_rounds``: after so many rounds of P
    micro-batches a rank's list repeats what it holds; None where it holds more with every micro-batch.
    ``in_flight(rank, ranks, micro_batches, chunks)`` is the largest number of forward passes of stages whose
    backward pass has not ended on that rank.
    """

    generate: Generator
    in_flight: Callable[[int, int, int, int], int]
    chunked: bool
    summary: str
    steady_rounds: int | None
    micro_batch_multiple: Callable[[int], int] = lambda ranks: 1


def looped_placement(ranks: int, chunks: int) -> tuple[int, ...]:
    """Pipeline rank of each stage when stages go round and round: 0 1 2 3 0 1 2 3."""
    return tuple(stage % ranks for stage in range(ranks * chunks))
