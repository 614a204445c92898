"""The signature that all schedules share.

A generator takes the number of pipeline ranks P, of micro-batches M and of chunks (stages) per rank V and
returns one list of F, B, I, W actions per pipeline rank. Stage s lies on rank ``placement(P, V)[s]``. Messages are
not in these lists: ``program/`` inserts them. An automatic schedule also looks at the times of the stages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from meshwright.schedule.action import Action
from meshwright.schedule.times import StageTimes, equal_times


class Generator(Protocol):
    """``generator(ranks, micro_batches, chunks)`` → one action list per rank."""

    def __call__(self, ranks: int, micro_batches: int, chunks: int) -> list[list[Action]]:
        """Return the lists; arguments have passed the rules of ``plan/check_pipeline.py``."""
        ...


class AutomaticGenerator(Protocol):
    """``generator(micro_batches, placement, times)`` → one action list per rank."""

    def __call__(
        self, micro_batches: int, placement: tuple[int, ...], times: StageTimes
    ) -> list[list[Action]]:
        """Return the lists."""
        ...


def looped_placement(ranks: int, chunks: int) -> tuple[int, ...]:
    """Pipeline rank of each stage when stages go round and round: 0 1 2 3 0 1 2 3."""
    return tuple(stage % ranks for stage in range(ranks * chunks))


def v_placement(ranks: int, chunks: int) -> tuple[int, ...]:
    """Pipeline rank of each stage when every second chunk goes back: 0 1 2 3 3 2 1 0."""
    there, back = tuple(range(ranks)), tuple(reversed(range(ranks)))
    return tuple(rank for chunk in range(chunks) for rank in (back if chunk % 2 else there))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleKind:
    """A schedule as the table of schedules lists it.

    ``chunked`` says that it wants several stages per rank, ``fixed_chunks`` how many if not any number;
    ``micro_batch_multiple`` is a function of the pipeline ranks that must divide the number of micro-batches.
    ``steady_rounds``: after so many rounds of P micro-batches a rank's list repeats what it holds; None where it
    holds more with every micro-batch, or settles after no number of rounds that is known. ``in_flight(rank, ranks,
    micro_batches, chunks)`` is the largest number of forward passes of stages whose backward pass has not ended on
    that rank; None where only the lists say it.

    ``split`` says that backward passes are I and W, not B. ``automatic`` makes lists that depend on the stages'
    times; ``generate`` is then the same with equal times. ``searched`` schedules are proposed by a search that was
    not told which one to take: those with a closed form.
    """

    generate: Generator
    in_flight: Callable[[int, int, int, int], int] | None
    chunked: bool
    summary: str
    steady_rounds: int | None
    micro_batch_multiple: Callable[[int], int] = lambda ranks: 1
    fixed_chunks: int | None = None
    placement: Callable[[int, int], tuple[int, ...]] = looped_placement
    split: bool = False
    automatic: AutomaticGenerator | None = None
    searched: bool = True

    def lists(
        self, ranks: int, micro_batches: int, chunks: int, times: StageTimes | None = None
    ) -> list[list[Action]]:
        """One list per rank; ``times`` of the K = P·V stages matter to automatic schedules only."""
        if self.automatic is None or times is None:
            return self.generate(ranks, micro_batches, chunks)
        return self.automatic(micro_batches, self.placement(ranks, chunks), times)

    def allows(self, chunks: int) -> bool:
        """Whether a rank may have so many stages."""
        if self.fixed_chunks is not None:
            return chunks == self.fixed_chunks
        return (chunks > 1) == self.chunked


def with_equal_times(
    automatic: AutomaticGenerator, placement: Callable[[int, int], tuple[int, ...]]
) -> Generator:
    """The lists of an automatic schedule when F, I and W of all stages take equally long and messages no time."""

    @lru_cache(maxsize=256)
    def lists(ranks: int, micro_batches: int, chunks: int) -> tuple[tuple[Action, ...], ...]:
        made = automatic(micro_batches, placement(ranks, chunks), equal_times(ranks * chunks))
        return tuple(map(tuple, made))

    def generate(ranks: int, micro_batches: int, chunks: int) -> list[list[Action]]:
        return [list(actions) for actions in lists(ranks, micro_batches, chunks)]

    return generate
