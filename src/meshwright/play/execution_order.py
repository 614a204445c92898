"""Find an order in which the actions of all ranks can run: each after its predecessor in the list and its inputs.

The order does not depend on how long anything takes, so it is found once and then played with any times
(``player.py``): with those of one pipeline, or with those of many plans at once. A rank goes on until it needs what is
not there yet, and is woken by the action that brings it: the work grows with the number of actions.

Lists may hold passes alone; then a message takes its time from pass to pass, and what all ranks sum up is there when
the last of them has passed. Or they hold messages, exchanges and barriers as actions (``Needs``). Both may have copies,
gathers and reductions in between. Where ranks meet, a step of no rank stands for what all of them wait for.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from meshwright.schedules.action import PASS_KINDS, SUMS, SYNCHRONISATIONS, Action, ActionLists
from meshwright.schedules.dependencies import StageChains, dependency_key, exchange_before, sources

MESSAGE = "message"
"""What brings a pass its input from another rank, where all ranks do not exchange something."""
NOBODY = -1
"""The rank of a step in which several ranks meet."""
MISSING = -1
"""The place of what has not run yet."""
UNTIMED = ("FREE", "VALIDATE", *SYNCHRONISATIONS)
"""Actions that take no time in a step; exchanges between islands count in rounds of steps."""
PASSES = frozenset(PASS_KINDS)
FIRST_PASSES = ("F", "B", "I", "E")
"""Passes that may be the first behind a gather of their stage's parameters."""
Source = tuple[int, str | None]
"""Where in the order something is that a step needs, and what brings it if that takes time."""


class Step(NamedTuple):
    """One action. ``sources`` are what it needs of others, of a copy back, or the pass that a reduction is behind.

    ``gather`` is the place of the gather that brings the parameters of a pass, for the first pass behind it.
    """

    stage: int
    rank: int
    kind: str
    sources: tuple[Source, ...]
    gather: int | None = None


class DeadlockError(Exception):
    """The lists wait for each other; ``waiting`` holds the next action of every rank that is stuck."""

    def __init__(self, waiting: Sequence[Action]) -> None:
        self.waiting = tuple(waiting)
        super().__init__("no rank can go on; waiting: " + " ".join(map(str, waiting)))


Need = tuple[str | None, tuple[Hashable, ...], Hashable]
"""What brings an action something from another rank if that takes time; the keys under which that is found, or the
meeting of several ranks that it needs."""
NOTHING: Need = None, (), None


class Needs(Protocol):
    """The rules of a kind of lists."""

    def need(self, action: Action, rank: int) -> Need:
        """Return what an action needs."""

    def met(self, action: Action, rank: int) -> tuple[Hashable, ...]:
        """Return the keys of what comes together in the meeting that an action needs."""

    def key(self, action: Action, rank: int) -> Hashable:
        """Return the key of an action that runs now, None if nobody needs it."""


class PassNeeds:
    """Lists of passes, with actions in between that concern one rank."""

    def __init__(self, ways: StageChains) -> None:
        self._ways = ways

    def need(self, action: Action, rank: int) -> Need:
        """Return the passes that a pass needs, or the sum over ranks."""
        if action.kind not in PASSES:
            return NOTHING
        exchange = exchange_before(action, self._ways) if self._ways.barriers else None
        if exchange in SUMS:
            return exchange, (), (exchange, action.micro_batch)
        return exchange or MESSAGE, sources(action, self._ways), None

    def met(self, action: Action, rank: int) -> tuple[Hashable, ...]:
        """Return the passes that a sum is of."""
        return sources(action, self._ways)

    def key(self, action: Action, rank: int) -> Hashable:
        """Return the key of a pass."""
        return dependency_key(action) if action.kind in PASSES else None


def execution_order(lists: ActionLists, ways: StageChains, needs: Needs | None = None) -> list[Step]:
    """All actions in an order in which they can run. Raises ``DeadlockError`` where there is none."""
    needs = needs or PassNeeds(ways)
    steps: list[Step] = []
    done: dict[Hashable, int] = {}
    meetings: dict[Hashable, tuple[Source, ...]] = {}
    asleep, near = _Asleep(), _OnOneRank(len(lists))
    alone = all(action.kind in PASSES for actions in lists for action in actions)
    position = [0] * len(lists)
    awake = list(reversed(range(len(lists))))
    while awake:
        rank = awake.pop()
        actions = lists[rank]
        for number in range(position[rank], len(actions)):
            action = actions[number]
            brings, keys, meeting = needs.need(action, rank)
            found = () if meeting is None else meetings.get(meeting)
            if found is None:
                keys = needs.met(action, rank)
            places = [done.get(key, MISSING) for key in keys]
            if MISSING in places:
                asleep.add(rank, [key for key, at in zip(keys, places, strict=True) if at == MISSING])
                break
            if found is None:
                meetings[meeting] = found = ((len(steps), None),)
                steps.append(Step(_number(action), NOBODY, brings or "", tuple((at, None) for at in places)))
            elif places:
                found = tuple([(at, None if steps[at].rank == rank else brings) for at in places])
            position[rank] = number + 1
            key = needs.key(action, rank)
            if alone:
                steps.append(Step(_number(action), rank, action.kind, found))
            elif action.kind not in UNTIMED:
                steps.append(near.step(action, rank, found, len(steps)))
            if key is not None:
                done[key] = len(steps) - 1
                if key in asleep.ranks:
                    awake += asleep.woken_by(key)
    stuck = [actions[at] for actions, at in zip(lists, position, strict=True) if at < len(actions)]
    if stuck:
        raise DeadlockError(stuck)
    return steps


def order_with(steps: Sequence[Step], lists: ActionLists) -> list[Step]:
    """Return an order of lists from that of their passes; what they have in between concerns one rank each.

    That comes right behind the pass before it, which a reduction makes longer before others look at it.
    """
    near, found, place = _OnOneRank(len(lists)), list[Step](), list[int]()
    position = [0] * len(lists)

    def go_on(rank: int) -> None:
        actions = lists[rank]
        while position[rank] < len(actions) and actions[position[rank]].kind not in PASSES:
            if actions[position[rank]].kind not in UNTIMED:
                found.append(near.step(actions[position[rank]], rank, (), len(found)))
            position[rank] += 1

    for rank in range(len(lists)):
        go_on(rank)
    for step in steps:
        rank, needed = step.rank, tuple([(place[source], brings) for source, brings in step.sources])
        place.append(len(found))
        if rank == NOBODY:
            found.append(step._replace(sources=needed))
            continue
        found.append(near.step(lists[rank][position[rank]], rank, needed, len(found)))
        position[rank] += 1
        go_on(rank)
    return found


def _number(action: Action) -> int:
    return NOBODY if action.stage is None else action.stage


class _OnOneRank:
    """The needs of steps for earlier ones on their own rank."""

    def __init__(self, ranks: int) -> None:
        self._back: dict[tuple[int | None, int | None], int] = {}
        self._gathered: dict[int | None, int] = {}
        self._last_pass: list[int | None] = [None] * ranks

    def step(self, action: Action, rank: int, found: tuple[Source, ...], place: int) -> Step:
        """Return an action as the step at ``place``."""
        kind, stage, gather = action.kind, action.stage, None
        if kind in PASSES:
            self._last_pass[rank] = place
            if self._back and kind in ("B", "I"):
                reload = self._back.pop((stage, action.micro_batch), None)
                found = found if reload is None else (*found, (reload, None))
            if self._gathered and kind in FIRST_PASSES:
                gather = self._gathered.pop(stage, None)
        elif kind == "RELOAD":
            self._back[stage, action.micro_batch] = place
        elif kind == "GATHER":
            self._gathered[stage] = place
        elif kind == "REDUCE" and (behind := self._last_pass[rank]) is not None:
            found = (*found, (behind, None))
        return Step(_number(action), rank, kind, found, gather)


class _Asleep:
    """Ranks that wait, by what they wait for."""

    def __init__(self) -> None:
        self.ranks: dict[Hashable, list[int]] = {}
        self._lacking: dict[int, int] = {}

    def add(self, rank: int, keys: Sequence[Hashable]) -> None:
        self._lacking[rank] = len(keys)
        for key in keys:
            self.ranks.setdefault(key, []).append(rank)

    def woken_by(self, key: Hashable) -> list[int]:
        """Return the ranks that this action was the last to block."""
        ranks = self.ranks.pop(key)
        for rank in ranks:
            self._lacking[rank] -= 1
        return [rank for rank in ranks if not self._lacking[rank]]
