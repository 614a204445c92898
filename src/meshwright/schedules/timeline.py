"""The time of each action of a schedule: list order on every rank, data dependencies between ranks.

``execution_order.py`` says in which order all can run. A message between ranks takes ``comm`` and needs no thread;
messages of one channel (sender, receiver) do not queue here: ``simulate/`` has links as resources. Exact for such
tables, in any kind of number; used for the figures of a schedule by itself and as a reference in tests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.schedules.action import SUMS, Action, ActionLists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.execution_order import execution_order
from meshwright.schedules.stage_times import StageTimes

Duration = Callable[[Action], float]
Between = Callable[[int, int], float]
"""What a message takes from a stage to another one."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Start and end of every action, per rank in list order, in the unit of the durations."""

    start: tuple[tuple[float, ...], ...]
    end: tuple[tuple[float, ...], ...]

    @property
    def makespan(self) -> float:
        """Max over ranks of last end − first start."""
        return max(ends[-1] - starts[0] for starts, ends in zip(self.start, self.end, strict=True) if ends)

    @property
    def latency(self) -> float:
        """Global end − global start."""
        return max(ends[-1] for ends in self.end if ends) - min(starts[0] for starts in self.start if starts)

    def divided(self, by: float) -> "Timeline":
        """Return the timeline with times divided by ``by``."""
        start, end = (
            tuple(tuple(time / by for time in row) for row in rows) for rows in (self.start, self.end)
        )
        return Timeline(start, end)


def run(
    lists: ActionLists, duration: Duration, comm: float | Between = 0, ways: StageChains | None = None
) -> Timeline:
    """Simulate the lists; by default all stages are one chain. Raise ``DeadlockError`` if they cannot finish.

    ``comm`` is the time of every message, or says it of those between two stages.
    """
    ways = ways or StageChains(1 + max((a.stage or 0) for actions in lists for a in actions))
    todo = [iter(actions) for actions in lists]
    clock: list[float] = [0] * len(lists)
    ended: list[float] = []
    starts: list[list[float]] = [[] for _ in lists]
    ends: list[list[float]] = [[] for _ in lists]
    sums: dict[int, float] = {}
    between: Between = comm if callable(comm) else lambda source, target: comm
    steps = execution_order(lists, ways)
    for stage, rank, _, needed, exchange, _ in steps:
        start = clock[rank]
        if exchange in SUMS:
            first = needed[0][0]
            if first not in sums:
                sums[first] = max(ended[source] + between(steps[source].stage, stage) for source, _ in needed)
            start = max(start, sums[first])
        else:
            for source, crosses in needed:
                delay = between(steps[source].stage, stage) if crosses else 0
                start = max(start, ended[source] + delay)
        clock[rank] = end = start + duration(next(todo[rank]))
        ended.append(end)
        starts[rank].append(start)
        ends[rank].append(end)
    return Timeline(tuple(map(tuple, starts)), tuple(map(tuple, ends)))


def played(lists: ActionLists, times: StageTimes, ways: StageChains) -> Timeline:
    """Play the lists with the times of their stages. Raises ``DeadlockError``."""
    seconds = seconds_by_kind(times)
    return run(lists, lambda action: seconds[action.kind][action.stage or 0], times.message, ways)


def seconds_by_kind(times: StageTimes) -> dict[str, Sequence[float]]:
    """Return the time of F, B, I and W of every stage; B is I and W together."""
    both = [i + w for i, w in zip(times.input, times.weight, strict=True)]
    return {"F": times.forward, "B": both, "I": times.input, "W": times.weight}
