"""The result of an emulated step: each rank's actions with start and end, and how accurate the clock was."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass

from meshwright.program.lowering.optimizer_post_validation import STEADY_STEPS
from meshwright.program.program import Program
from meshwright.schedules.action import PASS_KINDS, Action, Kind


@dataclass(frozen=True, slots=True)
class Timed:
    """One action on one stream; modelled seconds from the start of the step."""

    action: Action
    start: float
    end: float
    stream: str


def merged(records: Iterable[Timed], exchanges: Mapping[tuple[int | None, Kind], Sized]) -> tuple[Timed, ...]:
    """Return one entry for each execution of an action on a stream, ordered by start.

    ``exchanges`` tells which actions have several operations; those of one execution are merged.
    """
    of_action = defaultdict[tuple[Action, str], list[Timed]](list)
    for one in sorted(records, key=lambda timed: timed.start):
        of_action[one.action, one.stream].append(one)
    found = []
    for (action, stream), parts in of_action.items():
        operations = max(1, len(exchanges.get((action.stage, action.kind), ())))
        for first in range(0, len(parts), operations):
            time = parts[first : first + operations]
            found.append(Timed(action, time[0].start, max(part.end for part in time), stream))
    return tuple(sorted(found, key=lambda timed: timed.start))


@dataclass(frozen=True, slots=True)
class EmulatedSteps:
    """The steps of an emulation: ``timed`` ones, which count, behind ``before``."""

    before: int = 0
    timed: int = 1

    @property
    def total(self) -> int:
        """All steps."""
        return self.before + self.timed

    @classmethod
    def steady(cls, program: Program) -> "EmulatedSteps":
        """Return one step, behind others where steps overlap."""
        return cls(STEADY_STEPS - 1 if program.steps_overlap else 0)


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One process: the pipeline rank it stands for, and its actions in the last step.

    Of ``starts``, ``late`` were late. ``peak_bytes`` is the largest sum of activations in flight, in the ledger's bytes
    of each pass. ``before_s`` is the end of the step before those that are timed, 0 if there was none; ``end_s`` is the
    end of the last one. ``exchanges`` are those between islands in these steps.
    """

    pipeline_rank: int
    actions: tuple[Timed, ...]
    starts: int
    late: int
    peak_bytes: int
    before_s: float
    end_s: float
    exchanges: tuple[Timed, ...] = ()

    @property
    def busy_s(self) -> float:
        """Seconds in passes."""
        return sum(t.end - t.start for t in self.actions if t.action.kind in PASS_KINDS)


@dataclass(frozen=True, slots=True)
class Emulation:
    """An emulated step, or several: ``steps``. ``ranks`` has one entry per process.

    ``earlier`` are runs whose clock was late too often. ``scale`` is seconds of wall time per modelled second,
    ``real_time`` whether the ranks ran under SCHED_RR.
    """

    ranks: tuple[RankRecord, ...]
    scale: float
    wall_s: float
    real_time: bool
    load_average: float
    steps: EmulatedSteps
    earlier: tuple["Emulation", ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds from the end of the previous step, on its last rank, to the end of the last action of any rank."""
        return max(rank.end_s for rank in self.ranks) - max(rank.before_s for rank in self.ranks)

    @property
    def step_s(self) -> float:
        """Mean seconds of the steps that are timed."""
        return self.seconds / self.steps.timed

    @property
    def starts(self) -> int:
        """The number of starts of work on all ranks."""
        return sum(rank.starts for rank in self.ranks)

    @property
    def late(self) -> int:
        """The number of late starts."""
        return sum(rank.late for rank in self.ranks)

    @property
    def late_share(self) -> float:
        """Late starts as a fraction."""
        return self.late / max(1, self.starts)

    def of_class(self, pipeline_rank: int) -> RankRecord:
        """Return the first process that stands for a pipeline rank."""
        return next(rank for rank in self.ranks if rank.pipeline_rank == pipeline_rank)
