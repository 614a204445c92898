"""A topological order of all ranks' actions: each after its list's predecessor and its inputs.

The order does not depend on how long anything takes, so it is found once and then played with any times
(``timeline.py`` with those of one pipeline, ``cost/pipeline_time/time_action_lists.py`` with those of many plans
at once). A rank goes on until it needs what is not there yet, and is woken by the action that brings it: the work
grows with the number of actions.
"""

from collections.abc import Sequence
from typing import NamedTuple

from meshwright.schedules.action import SUMS, Action, ActionLists, Kind
from meshwright.schedules.dependencies import Key, StageChains, dependency_key, exchange_before, sources


class Step(NamedTuple):
    """One action; of each thing that it needs the place in the order, and whether that lies on another rank.

    ``exchange`` brings it where all ranks exchange something; a sum over ranks comes to all of them at once.
    ``reload`` is the place of the copy that brings what a backward pass has on its host.
    """

    stage: int
    rank: int
    kind: Kind
    sources: tuple[tuple[int, bool], ...]
    exchange: Kind | None = None
    reload: int | None = None


class DeadlockError(Exception):
    """The lists wait for each other; ``waiting`` holds the next action of every rank that is stuck."""

    def __init__(self, waiting: Sequence[Action]) -> None:
        self.waiting = tuple(waiting)
        super().__init__("no rank can go on; waiting: " + " ".join(map(str, waiting)))


def execution_order(lists: ActionLists, ways: StageChains) -> list[Step]:
    """All actions in an order in which they can run. Raises ``DeadlockError`` where there is none."""
    steps: list[Step] = []
    done: dict[Key, int] = {}
    sums: dict[tuple[Kind, int | None], tuple[tuple[int, bool], ...]] = {}
    asleep = _Asleep()
    position = [0] * len(lists)
    awake = list(reversed(range(len(lists))))
    while awake:
        rank = awake.pop()
        actions = lists[rank]
        for at in range(position[rank], len(actions)):
            action = actions[at]
            exchange = exchange_before(action, ways)
            meeting = exchange, action.micro_batch
            found = sums.get(meeting)  # type: ignore[arg-type]
            if found is None:
                needed = sources(action, ways)
                summed = exchange in SUMS
                found = tuple((done[k], summed or steps[done[k]].rank != rank) for k in needed if k in done)
                if len(found) < len(needed):
                    asleep.add(rank, [key for key in needed if key not in done])
                    break
                if summed:
                    sums[meeting] = found  # type: ignore[index]
            position[rank] = at + 1
            key = dependency_key(action)
            done[key] = len(steps)
            steps.append(Step(key[1], rank, action.kind, found, exchange))
            awake += asleep.woken_by(key)
    stuck = [actions[at] for actions, at in zip(lists, position, strict=True) if at < len(actions)]
    if stuck:
        raise DeadlockError(stuck)
    return steps


class _Asleep:
    """Ranks that wait, by what they wait for."""

    def __init__(self) -> None:
        self._ranks: dict[Key, list[int]] = {}
        self._lacking: dict[int, int] = {}

    def add(self, rank: int, keys: Sequence[Key]) -> None:
        self._lacking[rank] = len(keys)
        for key in keys:
            self._ranks.setdefault(key, []).append(rank)

    def woken_by(self, key: Key) -> list[int]:
        """Return the ranks that this pass was the last to block."""
        ranks = self._ranks.pop(key, [])
        for rank in ranks:
            self._lacking[rank] -= 1
        return [rank for rank in ranks if not self._lacking[rank]]
