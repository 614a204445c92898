"""The input of the solver: a pipeline, the memory of a micro-batch in each stage, and the time to minimise.

Mostly all stages hold equally much and all ranks may hold the same (``Holding.of``). The stages of a plan do not: each
has a size of its own, as a part of what its rank has room for. The pipeline's own memory limit is then one that is safe
for every rank, for lists that are made under a limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

from meshwright.play.in_flight import held_change
from meshwright.schedules.action import ActionLists
from meshwright.schedules.pipeline import PASS_MEMORY, Pipeline
from meshwright.schedules.split_backward.pass_numbers import Orders, Pass, first_starts
from meshwright.schedules.split_backward.pipeline_state import EPSILON

Goal = Literal["makespan", "latency"]
"""The longest span of a rank, where the steps of ranks may overlap; or from the first start to the last end of all."""


@dataclass(frozen=True)
class StageMemory:
    """Memory of a micro-batch in each stage: ``whole`` from F until I has ended, ``left`` from then until W has.

    In any unit; no rank holds more than ``limit``.
    """

    whole: tuple[float, ...]
    left: tuple[float, ...]
    limit: float

    @classmethod
    def of(cls, pipeline: Pipeline) -> "StageMemory":
        """Equal stages under the pipeline's own limit, in forward passes of a stage."""
        stages, limit = pipeline.stages, pipeline.memory_limit / PASS_MEMORY * pipeline.chunks
        return cls((1.0,) * stages, (pipeline.times.kept,) * stages, limit)

    @cached_property
    def changes(self) -> tuple[float, ...]:
        """The change of memory by every pass, indexed by its code."""
        stages = list(zip(self.whole, self.left, strict=True))
        return tuple(held_change(kind, *stage) for kind in "FIW" for stage in stages)

    def keeps(self, order: Sequence[Pass]) -> bool:
        """Return true if a rank with this list never holds more than the limit."""
        held = accumulate(self.changes[code] for code in order)
        return max(held, default=0.0) <= self.limit + EPSILON


class InitialList(NamedTuple):
    """Lists that are at hand, and whose they are."""

    name: str
    lists: ActionLists


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverInput:
    """A task of the solver; ``initial`` are initial lists in addition to those of the table."""

    pipeline: Pipeline
    holding: StageMemory
    goal: Goal = "makespan"
    initial: tuple[InitialList, ...] = ()

    @classmethod
    def of(cls, pipeline: Pipeline) -> "SolverInput":
        """Return the task of minimising the makespan of equal stages, under the pipeline's own limit."""
        return cls(pipeline=pipeline, holding=StageMemory.of(pipeline))

    @property
    def counted_from(self) -> list[float]:
        """The time from which the span of each rank counts."""
        if self.goal == "makespan":
            return first_starts(self.pipeline)
        return [0.0] * self.pipeline.ranks

    def keeps(self, orders: Orders) -> bool:
        """Return true if no rank ever holds more than the limit."""
        return all(map(self.holding.keeps, orders))
