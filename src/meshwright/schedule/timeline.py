"""When each action of a schedule runs: list order on every rank, data dependencies between ranks.

F of stage s needs F of stage s−1, B and I of stage s need B or I of stage s+1 (the last stage: its own F), W
needs I. A message between ranks takes ``comm`` and needs no thread; messages of one channel (sender, receiver)
do not queue here: ``simulate/`` has links as resources. Exact for such tables; used for the figures of a
schedule by itself and as a reference in tests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.schedule.action import Action, ActionLists

Duration = Callable[[Action], float]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Start and end of every action, per rank in list order, in the unit of the durations."""

    start: tuple[tuple[float, ...], ...]
    end: tuple[tuple[float, ...], ...]

    @property
    def makespan(self) -> float:
        """Max over ranks of last end − first start."""
        return max(ends[-1] - starts[0] for starts, ends in zip(self.start, self.end, strict=True))

    @property
    def latency(self) -> float:
        """Global end − global start."""
        return max(ends[-1] for ends in self.end) - min(starts[0] for starts in self.start)


class DeadlockError(Exception):
    """The lists wait for each other; ``waiting`` holds each stuck rank's next action."""

    def __init__(self, waiting: Sequence[Action]) -> None:
        self.waiting = tuple(waiting)
        super().__init__("no rank can go on; waiting: " + " ".join(map(str, waiting)))


def run(lists: ActionLists, duration: Duration, comm: float = 0) -> Timeline:
    """Play the lists. Raises ``DeadlockError`` when they can not finish."""
    stages = 1 + max((a.stage or 0) for actions in lists for a in actions)
    done: dict[tuple[str, int, int], tuple[float, int]] = {}
    starts: list[list[float]] = [[] for _ in lists]
    ends: list[list[float]] = [[] for _ in lists]
    progress = True
    while progress:
        progress = False
        for rank, actions in enumerate(lists):
            while len(ends[rank]) < len(actions):
                action = actions[len(ends[rank])]
                ready = _ready(action, rank, stages, done, comm)
                if ready is None:
                    break
                start = max(ready, ends[rank][-1] if ends[rank] else 0)
                starts[rank].append(start)
                ends[rank].append(start + duration(action))
                done[_key(action)] = (ends[rank][-1], rank)
                progress = True
    waiting = [actions[len(e)] for actions, e in zip(lists, ends, strict=True) if len(e) < len(actions)]
    if waiting:
        raise DeadlockError(waiting)
    return Timeline(tuple(map(tuple, starts)), tuple(map(tuple, ends)))


def predecessor(action: Action, stages: int) -> tuple[str, int, int] | None:
    """What an action's data comes from, as (kind, stage, micro-batch); a backward pass is found under ``B``."""
    assert action.stage is not None
    assert action.micro_batch is not None
    stage, micro_batch = action.stage, action.micro_batch
    if action.kind == "F":
        return ("F", stage - 1, micro_batch) if stage > 0 else None
    if action.kind == "W":
        return ("B", stage, micro_batch)
    return ("B", stage + 1, micro_batch) if stage + 1 < stages else ("F", stage, micro_batch)


def _key(action: Action) -> tuple[str, int, int]:
    assert action.stage is not None
    assert action.micro_batch is not None
    return ("B" if action.kind == "I" else action.kind, action.stage, action.micro_batch)


def _ready(
    action: Action, rank: int, stages: int, done: dict[tuple[str, int, int], tuple[float, int]], comm: float
) -> float | None:
    source = predecessor(action, stages)
    if source is None:
        return 0
    if source not in done:
        return None
    end, where = done[source]
    return end if where == rank else end + comm
