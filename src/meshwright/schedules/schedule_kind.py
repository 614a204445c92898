"""The signature of all schedules, and the facts about each in the table of schedules.

A generator takes a ``Pipeline`` and returns one list of F, B, I, W actions per pipeline rank. Messages are not in these
lists: ``program/`` inserts them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from meshwright.schedules.action import Action
from meshwright.schedules.delayed_lists import delayed_lists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import USUAL, Knobs, Pipeline, looped_placement
from meshwright.schedules.stage_times import StageTimes, equal_times

Aspect = Literal["times", "memory_limit", "unit", "in_flight"]


Generator = Callable[[Pipeline], list[list[Action]]]
"""``generator(pipeline)`` → one action list per rank; the pipeline has passed ``plans/rules/batch_and_pipeline.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleKind:
    """A schedule as the table of schedules lists it.

    ``depends_on`` names what its lists depend on besides P, M and V: the stages' times, knobs of the plan.
    ``chunked`` says that it wants several stages per rank, ``fixed_chunks`` how many if not any number;
    ``micro_batch_multiple`` is a function of the pipeline ranks that must divide the number of micro-batches.
    ``steady_rounds``: after so many rounds of P micro-batches a rank's list repeats what it holds; None where it
    holds more with every micro-batch, or settles after no number of rounds that is known. ``in_flight(rank, ranks,
    micro_batches, chunks)`` is, with usual knobs, the largest number of forward passes of stages whose backward pass
    has not ended on that rank; None where only the lists say it. ``chains`` is how often a rank's stages make up the
    whole model: 2 for bidirectional schedules, whose parameters are held twice. ``rank_multiple`` must divide the
    pipeline ranks. ``unit_fault(ranks, micro_batches, unit)`` says why a unit of so many micro-batches can not be,
    ``usual_unit(ranks, micro_batches)`` how many go together where nothing is said; None: there are no units.

    ``split`` says that backward passes are I and W, not B. ``default_memory_limit`` is what no rank holds more than,
    in times of what 1F1B holds, where a plan turns no knob; None where only the lists say it. ``searched`` schedules
    are proposed by a search that was not told which one to take: those with a closed form. One that is told to
    search them all also tries units of ``unit_rounds`` rounds of P micro-batches, and the usual one. ``only``:
    where there are lists for so many ranks and micro-batches and for no others. ``barriers``: lists that have the
    passes of a spread vocabulary themselves can run with so many of them. ``note``: how its published bubble is defined
    where that is not ours; empty where the two are the same.
    """

    make: Generator
    in_flight: Callable[[int, int, int, int], int] | None
    chunked: bool
    summary: str
    steady_rounds: int | None
    micro_batch_multiple: Callable[[int], int] = lambda ranks: 1
    rank_multiple: int = 1
    unit_fault: Callable[[int, int, int], str | None] = lambda ranks, micro_batches, unit: None
    usual_unit: Callable[[int, int], int] | None = None
    fixed_chunks: int | None = None
    placement: Callable[[int, int], tuple[int, ...]] = looped_placement
    split: bool = False
    depends_on: frozenset[Aspect] = frozenset()
    chains: int = 1
    default_memory_limit: float | None = None
    searched: bool = True
    only: tuple[int, int] | None = None
    unit_rounds: tuple[int, ...] = ()
    barriers: tuple[int, ...] = ()
    note: str = ""

    @property
    def automatic(self) -> bool:
        """Return true if lists depend on the times of the stages."""
        return "times" in self.depends_on

    def pipeline(
        self,
        ranks: int,
        micro_batches: int,
        chunks: int,
        times: StageTimes | None = None,
        knobs: Knobs = USUAL,
    ) -> Pipeline:
        """Return the generator's input, with defaults for what the schedule does not depend on."""
        seen = Knobs(
            memory_limit=knobs.memory_limit if "memory_limit" in self.depends_on else None,
            unit=self._unit(ranks, micro_batches, knobs),
            in_flight=knobs.in_flight if "in_flight" in self.depends_on else None,
        )
        return Pipeline(
            ranks=ranks,
            micro_batches=micro_batches,
            placement=self.placement(ranks, chunks),
            times=times if times and self.automatic else equal_times(ranks * chunks),
            knobs=seen,
        )

    def lists(
        self,
        ranks: int,
        micro_batches: int,
        chunks: int,
        times: StageTimes | None = None,
        knobs: Knobs = USUAL,
    ) -> list[list[Action]]:
        """One list per rank; without ``times`` of the K = P·V stages as if they took equally long."""
        made = _made(self.make, self.pipeline(ranks, micro_batches, chunks, times, knobs))
        return [list(actions) for actions in made]

    def unit(self, ranks: int, micro_batches: int, chunks: int, knobs: Knobs = USUAL) -> int | None:
        """Return the micro-batches that pass a rank's stages as one unit; None where there are no units."""
        pipeline = self.pipeline(ranks, micro_batches, chunks, knobs=knobs)
        if self.usual_unit is None or pipeline.knobs.in_flight is None:
            return pipeline.knobs.unit
        return delayed_lists(self.make, pipeline)[0]

    def _unit(self, ranks: int, micro_batches: int, knobs: Knobs) -> int | None:
        if self.usual_unit is None:
            return None
        return knobs.unit or self.usual_unit(ranks, micro_batches)

    def ways(self, ranks: int, chunks: int) -> StageChains:
        """Return the path of micro-batches through the stages."""
        return StageChains(ranks * chunks, self.chains)

    def fault(self, ranks: int, micro_batches: int, knobs: Knobs = USUAL) -> str | None:
        """Why there are no lists for so many ranks and micro-batches; None where there are.

        A unit that is named has a rule of its own in place of ``micro_batch_multiple``, that of the usual unit.
        """
        if self.only not in (None, (ranks, micro_batches)):
            return f"pp, micro-batches = {ranks}, {micro_batches} must be {self.only[0]}, {self.only[1]}"
        if ranks % self.rank_multiple:
            return f"pp % {self.rank_multiple} = {ranks} % {self.rank_multiple} must be 0"
        if knobs.unit is not None and "unit" in self.depends_on:
            if knobs.unit > micro_batches:
                return f"unit = {knobs.unit} ≤ micro-batches = {micro_batches} must hold"
            return self.unit_fault(ranks, micro_batches, knobs.unit)
        multiple = self.micro_batch_multiple(ranks)
        rest = micro_batches % multiple
        return (
            f"micro-batches % {multiple} = {micro_batches} % {multiple} = {rest} must be 0" if rest else None
        )

    def allows(self, chunks: int) -> bool:
        """Return true if a rank may have that many stages."""
        if self.fixed_chunks is not None:
            return chunks == self.fixed_chunks
        return (chunks > 1) == self.chunked


def nearest_unit(kind: ScheduleKind, ranks: int, micro_batches: int, unit: int) -> int | None:
    """Return the legal unit that is nearest to ``unit``; None where no unit is legal."""
    near = sorted(range(1, micro_batches + 1), key=lambda other: abs(other - unit))
    return next((other for other in near if not kind.fault(ranks, micro_batches, Knobs(unit=other))), None)


@lru_cache(maxsize=256)
def _made(make: Generator, pipeline: Pipeline) -> tuple[tuple[Action, ...], ...]:
    if pipeline.knobs.in_flight is not None:
        return delayed_lists(make, pipeline)[1]
    return tuple(map(tuple, make(pipeline)))
