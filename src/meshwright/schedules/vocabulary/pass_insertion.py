"""Insert S and T into a schedule's lists, at positions found by simulation.

A rank that is free does what can begin first: S as soon as the last stage's output is there, T as soon as all ranks
have ended S, else the next pass of its list. T goes before S and both before the list: other ranks wait for them, and
the oldest micro-batch is the one whose gradient is needed next. With one barrier only the table's gradient is left for
T and nobody waits for it: up to ``late`` micro-batches of a rank may then wait for T, which runs in the gaps that it
fits into, as W does. An exchange is over a message after the last rank's pass, for all ranks.

All ranks take S, and T, in the order in which the last stage ends its forward passes, so that all meet the exchanges
of a barrier in one order. Delayed lists (``delayed_backward.py``) could wait for each other where ranks take forward
passes in different orders: then a backward pass that can run is taken out of its place. There always is one: forward
passes keep their order, as all others do, and no forward pass has more of the others before it than in the
schedule's own lists, which do not wait for each other.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.dependencies import Key, StageChains, dependency_key, sources
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.stage_times import ShareTimes
from meshwright.schedules.vocabulary.barrier import Barrier
from meshwright.schedules.vocabulary.pass_times import durations

Choice = tuple[float, int]
"""When a rank can begin what it does next, and what that is."""
T, S, LISTED = range(3)
"""What a rank may do next; of what can begin at the same time the first."""
NEVER: Choice = (float("inf"), LISTED)


class Player:
    """Plays lists and puts S and T into them; ``lists`` is what each rank did."""

    def __init__(
        self, todo: ActionLists, pipeline: Pipeline, ways: StageChains, share: ShareTimes, late: int = 1
    ) -> None:
        ranks = len(todo)
        self.lists: list[list[Action]] = [[] for _ in todo]
        self._todo = [list(reversed(actions)) for actions in todo]
        self._pipeline, self._ways, self._layers = pipeline, ways, StageChains(ways.stages)
        self._seconds, self._t_seconds = durations(pipeline.times, share), share.t
        self._last = ways.stages - 1
        self._late = late if ways.barriers == 1 else 1
        self._clock, self._begun = [0.0] * ranks, [-1.0] * ranks
        self._done: dict[Key, float] = {}
        self._sent: list[tuple[int, float]] = []
        self._s, self._t = Barrier(ranks), Barrier(ranks)
        self._gradient: dict[int, float] = {}

    @property
    def makespan(self) -> float:
        """Max over ranks of last end − first start."""
        return max(end - start for start, end in zip(self._begun, self._clock, strict=True))

    def play(self) -> "Player":
        """From the first action to the last."""
        ranks = range(len(self.lists))
        left = sum(map(len, self._todo)) + 2 * len(ranks) * self._pipeline.micro_batches
        versions, changed = [0] * len(ranks), set(ranks)
        choices: list[tuple[float, int, int, int]] = []
        while left:
            for rank in changed:
                versions[rank] += 1
                start, what = self._choose(rank)
                if start < NEVER[0]:
                    heappush(choices, (start, rank, what, versions[rank]))
            if not choices:
                changed = {self._pull()}
                continue
            start, rank, what, answered = heappop(choices)
            changed = set()
            if answered == versions[rank]:  # else the rank has chosen anew since
                changed = {rank, *self._do(rank, what, start)}
                left -= 1
        return self

    def _choose(self, rank: int) -> Choice:
        """Return a rank's next pass, as far as it is known."""
        now, s, t = self._clock[rank], self._s.made[rank], self._t.made[rank]
        listed = self._ready(rank, self._todo[rank][-1]) if self._todo[rank] else None
        sent = self._sent[s][1] + self._crossing(self._ways.stages - 1, rank) if s < len(self._sent) else None
        best = min(_begin(now, listed, LISTED), _begin(now, sent, S))
        passed = self._s.passed(t)
        last = _begin(now, None if passed is None else passed + self._pipeline.times.message, T)
        if s - t < self._late and best[0] < last[0] + self._t_seconds:
            return best
        return min(best, last)

    def _ready(self, rank: int, action: Action) -> float | None:
        """Return the time at which a pass of a stage has its input; None if that is not known yet."""
        assert action.micro_batch is not None
        if action.stage == self._last and action.kind in ("B", "I"):
            return self._gradient.get(action.micro_batch)
        ready = 0.0
        for key in sources(action, self._layers):
            if key not in self._done:
                return None
            ready = max(ready, self._done[key] + self._crossing(key[1], rank))
        return ready

    def _crossing(self, stage: int, rank: int) -> float:
        """Return the transfer time of a stage's result."""
        return 0.0 if self._pipeline.placement[stage] == rank else self._pipeline.times.message

    def _do(self, rank: int, what: int, start: float) -> Iterable[int]:
        """Append an action; returns the ranks that may have something new to do."""
        action = self._todo[rank].pop() if what == LISTED else self._share_of(rank, what)
        end = start + self._seconds(action)
        self._clock[rank] = end
        if not self.lists[rank]:
            self._begun[rank] = start
        self.lists[rank].append(action)
        return self._after_listed(action, end) if what == LISTED else self._after_share(rank, what, end)

    def _share_of(self, rank: int, what: int) -> Action:
        barrier = self._s if what == S else self._t
        micro_batch = self._sent[barrier.made[rank]][0]
        return Action("S" if what == S else "T", self._ways.stages + rank, micro_batch)

    def _after_listed(self, action: Action, end: float) -> Iterable[int]:
        key = dependency_key(action)
        self._done[key] = end
        kind, stage, micro_batch = key
        if kind == "F" and self._ways.is_last(stage):
            self._sent.append((micro_batch, end))
            return range(len(self.lists))
        neighbour = stage + {"F": 1, "B": -1, "W": 0}[kind]
        return (self._pipeline.placement[neighbour],) if neighbour >= 0 else ()

    def _after_share(self, rank: int, what: int, end: float) -> Iterable[int]:
        barrier = self._s if what == S else self._t
        micro_batch = self._sent[barrier.made[rank]][0]
        passed = barrier.end(rank, end)
        if passed is None:
            return ()
        if what == (T if self._ways.barriers > 1 else S):
            self._gradient[micro_batch] = passed + self._pipeline.times.message
        return range(len(self.lists))

    def _pull(self) -> int:
        """Take a backward pass that can run out of its place; returns its rank."""
        for rank, todo in enumerate(self._todo):
            place = next((i for i in reversed(range(len(todo))) if todo[i].kind != "F"), None)
            if place is not None and self._ready(rank, todo[place]) is not None:
                todo.append(todo.pop(place))
                return rank
        raise AssertionError("the schedule's own lists wait for each other")


def _begin(now: float, ready: float | None, what: int) -> Choice:
    return NEVER if ready is None else (max(now, ready), what)
