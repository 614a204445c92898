"""What an emulated step leaves behind: per rank every action with its start and end, and how well the clock did."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass

from meshwright.schedule.action import PASS_KINDS, Action, Kind


@dataclass(frozen=True, slots=True)
class Timed:
    """One action on one stream; modelled seconds from the start of the step."""

    action: Action
    start: float
    end: float
    stream: str


def merged(records: Iterable[Timed], exchanges: Mapping[tuple[int | None, Kind], Sized]) -> tuple[Timed, ...]:
    """One entry for each time that an action ran on a stream, by their starts.

    ``exchanges`` says which actions have several operations; all of one time are one entry.
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
class RankRecord:
    """One process: the pipeline rank for which it stands, and what it did. ``starts`` of which ``late`` were late.

    ``peak_bytes`` is the largest sum of activations in flight, in the ledger's bytes of each pass. ``before_s`` is when
    it had ended the step before, where one was.
    """

    pipeline_rank: int
    actions: tuple[Timed, ...]
    starts: int
    late: int
    peak_bytes: int
    before_s: float = 0.0

    @property
    def end_s(self) -> float:
        """When its last action ended."""
        return max((timed.end for timed in self.actions), default=0.0)

    @property
    def busy_s(self) -> float:
        """Seconds in passes."""
        return sum(t.end - t.start for t in self.actions if t.action.kind in PASS_KINDS)


@dataclass(frozen=True, slots=True)
class Emulation:
    """An emulated step. ``ranks`` has one entry per process; ``earlier`` are runs whose clock was late too often.

    ``scale`` is seconds of the wall per modelled second, ``real_time`` whether the ranks ran under SCHED_RR.
    """

    ranks: tuple[RankRecord, ...]
    scale: float
    wall_s: float
    real_time: bool
    load_average: float
    earlier: tuple["Emulation", ...] = ()

    @property
    def step_s(self) -> float:
        """From the end of the step before, on the last rank to end it, to the end of the last action of any rank."""
        return max(rank.end_s for rank in self.ranks) - max(rank.before_s for rank in self.ranks)

    @property
    def starts(self) -> int:
        """How often something began."""
        return sum(rank.starts for rank in self.ranks)

    @property
    def late(self) -> int:
        """How many of the starts were late."""
        return sum(rank.late for rank in self.ranks)

    @property
    def late_share(self) -> float:
        """Late starts as a fraction."""
        return self.late / max(1, self.starts)

    def of_class(self, pipeline_rank: int) -> RankRecord:
        """The first of the processes that stand for a pipeline rank."""
        return next(rank for rank in self.ranks if rank.pipeline_rank == pipeline_rank)
