"""State of a pipeline under simulation: the passes each rank has run, their ends, and memory held.

Memory is in forward passes of one stage: F adds 1, I takes what it does not leave for W, W takes that.
"""

from abc import abstractmethod
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from meshwright.play.in_flight import held_change
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pass_numbers import Pass, PassTable, first_starts

EPSILON = 1e-9
"""Times and memory that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class PlayedPasses:
    """F, I and W of every rank, and the makespan."""

    passes: list[list[Pass]]
    makespan: float


class Choice(NamedTuple):
    """A rank's next pass, compared by its start, then by the order of kinds, then the later stage first."""

    start: float
    order: int
    before: int
    """The stage, negative."""
    code: Pass


NOTHING = Choice(float("inf"), 3, 0, -1)


class PipelineState(PassTable):
    """The state; all ranks begin as soon as the first micro-batch can be there."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.micro_batches = pipeline.micro_batches
        of_kinds = (held_change(kind, 1.0, pipeline.times.kept) for kind in "FIW")
        self.changes = tuple(change for change in of_kinds for _ in range(self.stages))
        self.begun = first_starts(pipeline)
        self.ends: list[list[float]] = [[] for _ in range(3 * self.stages)]
        self.clock, self.held = [0.0] * pipeline.ranks, [0.0] * pipeline.ranks
        self.passes: list[list[Pass]] = [[] for _ in range(pipeline.ranks)]

    def ready(self, code: Pass) -> float | None:
        """Return the time at which the next F or I of a stage has its input; None if unknown, or after the last one."""
        number, source = len(self.ends[code]), self.source[code]
        if source < 0:
            return 0.0 if number < self.micro_batches else None
        ends = self.ends[source]
        return ends[number] + self.delay[code] if number < len(ends) else None

    def waits(self, stage: int) -> bool:
        """Return true if W of a stage is pending."""
        return len(self.ends[2 * self.stages + stage]) < len(self.ends[self.stages + stage])

    def run(self, code: Pass, ready: float = 0.0) -> None:
        """Run the next pass of a rank."""
        rank = self.rank[code]
        end = max(ready, self.clock[rank]) + self.seconds[code]
        self.clock[rank] = end
        self.ends[code].append(end)
        self.held[rank] += self.changes[code]
        self.passes[rank].append(code)

    def played(self) -> PlayedPasses:
        """Return the passes that were run, with their makespan."""
        return PlayedPasses(self.passes, max(e - b for b, e in zip(self.begun, self.clock, strict=True)))


class EarliestFirst(PipelineState):
    """A simulation in which the rank whose next pass begins first runs it; subclasses choose a rank's next pass."""

    @abstractmethod
    def choice(self, rank: int) -> Choice:
        """Return the next pass of a rank; ``NOTHING`` where it waits for another rank."""

    def run_all(self) -> None:
        """Run the pass that begins first, until all are run; outdated choices are recognised by their number."""
        ranks = range(len(self.clock))
        versions = [0] * len(ranks)
        queue = [(self.choice(rank), rank, 0) for rank in ranks]
        heapify(queue)
        while queue:
            choice, rank, number = heappop(queue)
            if number != versions[rank] or choice is NOTHING:
                continue
            code, target = choice.code, -1
            if code < 2 * self.stages:
                target = self.target[code]
                self.run(code, self.ready(code) or 0.0)
            else:
                self.run(code)
            for changed in {rank, self.rank[target]} if target >= 0 else {rank}:
                versions[changed] += 1
                heappush(queue, (self.choice(changed), changed, versions[changed]))
