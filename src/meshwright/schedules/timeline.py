"""The time of each action of a schedule: list order on every rank, data dependencies between ranks.

Lists of passes alone, played as those of plans are (``play/player.py``). A message between ranks takes ``comm`` and
needs no thread; messages of one channel (sender, receiver) do not queue here: ``simulate/`` has links as resources.
Exact for such tables, in any kind of number; used for the figures of a schedule by itself and as a reference in tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from meshwright.play.clocks import Clocks, Numbers
from meshwright.play.execution_order import MESSAGE, NOBODY, Step, execution_order
from meshwright.play.player import Player
from meshwright.schedules.action import EXCHANGES, PASS_KINDS, Action, ActionLists
from meshwright.schedules.dependencies import StageChains
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
    steps = execution_order(lists, ways)
    todo = [iter(actions) for actions in lists]
    lengths = [0 if step.rank == NOBODY else duration(next(todo[step.rank])) for step in steps]
    waits: dict[Any, Any] = dict.fromkeys((MESSAGE, *EXCHANGES), 0)
    if callable(comm):
        needed = [_with_waits(step, steps, comm, waits) for step in steps]
    else:
        waits, needed = dict.fromkeys(waits, comm), [step.sources for step in steps]
    by_place = [(place, step[1], step[2], needed[place], None) for place, step in enumerate(steps)]
    return _timeline(cast(list[Step], by_place), len(lists), dict.fromkeys(PASS_KINDS, lengths), waits)


def _timeline(
    steps: Sequence[Step], ranks: int, seconds: Mapping[str, Sequence[float]], waits: Mapping[Any, Any]
) -> Timeline:
    clocks = Clocks(ranks, Numbers(0, max, min))
    Player(clocks, seconds, waits).play(steps)
    start: list[list[float]] = [[] for _ in range(ranks + 1)]
    end: list[list[float]] = [[] for _ in range(ranks + 1)]
    for (_, rank, *_), begins, ends in zip(steps, clocks.starts, clocks.ends, strict=True):
        start[rank].append(begins)
        end[rank].append(ends)
    return Timeline(tuple(map(tuple, start[:ranks])), tuple(map(tuple, end[:ranks])))


def _with_waits(
    step: Step, steps: Sequence[Step], between: Between, waits: dict[Any, Any]
) -> tuple[tuple[int, Any], ...]:
    """Return what a step needs, with the two stages as what each message takes its time for."""
    if not step.sources:
        return ()
    found: list[tuple[int, Any]] = []
    for source, brings in step.sources:
        ends = None
        if brings is not None or step.rank == NOBODY:
            ends = steps[source].stage, step.stage
            if ends not in waits:
                waits[ends] = between(*ends)
        found.append((source, ends))
    return tuple(found)


def played(lists: ActionLists, times: StageTimes, ways: StageChains) -> Timeline:
    """Play the lists with the times of their stages. Raises ``DeadlockError``."""
    waits = dict.fromkeys((MESSAGE, *EXCHANGES), times.message)
    return _timeline(execution_order(lists, ways), len(lists), seconds_by_kind(times), waits)


def seconds_by_kind(times: StageTimes) -> dict[str, Sequence[float]]:
    """Return the time of F, B, I and W of every stage; B is I and W together."""
    both = [i + w for i, w in zip(times.input, times.weight, strict=True)]
    return {"F": times.forward, "B": both, "I": times.input, "W": times.weight}
